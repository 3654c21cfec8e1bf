//! Every gradient against central differences of an independent `f64` forward pass.
//!
//! Each model is small but holds every operation that it is made of, so that a wrong derivative of any
//! of them shows in the tensors before it. `a_wrong_gradient_is_noticed` shows that the comparison
//! can fail.

use bellwether_core::job::CellEdges;
use bellwether_runtime::workload::{Layout, Workload};

use crate::common::{IDX, Numbers, build_with, gradient, idx_files, initial, job};
use crate::reference::{self, Array, TransformerSizes, cross_entropy};

/// Step of the central differences: their error is about its square, that of `f64` about 1e-16 over it.
const STEP: f64 = 1e-5;

/// The relative error of each tensor's gradient; a tensor with a vanishing gradient is compared with
/// the norm of the whole one instead.
fn errors(layout: &Layout, gradient: &[f32], numeric: &[f64]) -> Vec<(String, f64)> {
    let norm = |values: &[f64]| values.iter().map(|value| value * value).sum::<f64>().sqrt();
    let whole = norm(numeric);
    let mut start = 0;
    let mut errors = vec![];
    for tensor in &layout.parameters {
        let range = start..start + tensor.len();
        start = range.end;
        let difference: Vec<f64> =
            range.clone().map(|place| f64::from(gradient[place]) - numeric[place]).collect();
        errors.push((tensor.name.clone(), norm(&difference) / norm(&numeric[range]).max(1e-4 * whole)));
    }
    errors
}

fn numeric(parameters: &[f32], loss: &dyn Fn(&[f64]) -> f64) -> Vec<f64> {
    let mut at: Vec<f64> = parameters.iter().copied().map(f64::from).collect();
    (0..at.len())
        .map(|place| {
            let middle = at[place];
            at[place] = middle + STEP;
            let above = loss(&at);
            at[place] = middle - STEP;
            let below = loss(&at);
            at[place] = middle;
            (above - below) / (2.0 * STEP)
        })
        .collect()
}

/// Parameters with nothing at zero or one, so that every term counts.
fn shaken(workload: &mut dyn Workload, amount: f32) -> (Vec<f32>, Vec<f32>) {
    let (mut parameters, state) = initial(workload, 5);
    let mut numbers = Numbers(17);
    parameters.iter_mut().for_each(|value| *value += amount * numbers.signed());
    (parameters, state)
}

fn check(
    workload: &mut dyn Workload,
    samples: &[u64],
    shake: f32,
    tolerance: f64,
    loss: &dyn Fn(&[f64]) -> f64,
) {
    let (parameters, state) = shaken(workload, shake);
    let call = gradient(workload, (&parameters, &state, 1), samples, 0);
    let exact: Vec<f64> = parameters.iter().copied().map(f64::from).collect();
    let expected = loss(&exact);
    assert!((call.loss - expected).abs() < 1e-4 * expected.abs(), "loss {} for {expected}", call.loss);
    let numeric = numeric(&parameters, loss);
    for (name, error) in errors(workload.layout(), &call.gradient, &numeric) {
        println!("{name}: {error:.1e}");
        assert!(error < tolerance, "{name}: the gradient is off by {error:.1e}");
    }
}

/// Pixels and labels of IDX files as the crate must read them.
fn images(files: &[(&str, Vec<u8>)], count: usize, shape: [usize; 3]) -> (Array, Vec<u32>) {
    let pixels = files[0].1[16..].iter().map(|byte| f64::from(f32::from(*byte) / 255.0)).collect();
    let labels = files[1].1[8..].iter().map(|byte| u32::from(*byte)).collect();
    let [channels, height, width] = shape;
    (Array::new(&[count, channels, height, width], pixels), labels)
}

#[test]
fn mlp() {
    let mut numbers = Numbers(3);
    let rows: Vec<Vec<f32>> = (0..6).map(|_| (0..5).map(|_| numbers.signed()).collect()).collect();
    let labels: Vec<u32> = (0..6).map(|index| index % 3).collect();
    let line = |(row, label): (&Vec<f32>, &u32)| {
        row.iter().map(f32::to_string).chain([label.to_string()]).collect::<Vec<_>>().join(",")
    };
    let text = rows.iter().zip(&labels).map(line).collect::<Vec<_>>().join("\n");
    let job = job("{ kind = \"mlp\", hidden = [7, 4] }", "{ kind = \"csv\", path = \"x\", held_out = 0.0 }");
    let mut workload = build_with(&job, &[("x", text.into_bytes())]);
    let input = Array::new(&[6, 5], rows.concat().into_iter().map(f64::from).collect());
    check(workload.as_mut(), &[0, 1, 2, 3, 4, 5], 0.1, 1e-5, &|parameters| {
        cross_entropy(&reference::mlp(parameters, &input, &[7, 4], 3), &labels)
    });
}

#[test]
fn convnet() {
    // The small size pads the second convolution, the large one does not; 27 leaves odd sizes to pool.
    for (size, padding, tolerance) in [(8, 2, 1e-5), (27, 0, 1e-5)] {
        let files = idx_files(3, size, size, 3);
        let (input, labels) = images(&files, 3, [1, size, size]);
        let padding = if size / 2 < 12 { padding } else { 0 };
        let job = job("{ kind = \"convnet\", filters = [2, 3], hidden = [5, 4] }", IDX);
        let mut workload = build_with(&job, &files);
        check(workload.as_mut(), &[0, 1, 2], 0.1, tolerance, &|parameters| {
            let scores = reference::convnet(parameters, &input, [2, 3], [5, 4], padding, 3);
            cross_entropy(&scores, &labels)
        });
    }
}

#[test]
fn resnet() {
    let files = idx_files(4, 8, 8, 3);
    let (input, labels) = images(&files, 4, [1, 8, 8]);
    let job = job("{ kind = \"resnet\", blocks = 2, width = 2 }", IDX);
    let mut workload = build_with(&job, &files);
    // Looser than the others: normalisation subtracts nearly equal numbers and divides by small
    // deviations, layer after layer, so that even PyTorch's f32 gradient of ResNet-20 is off by 5e-3.
    check(workload.as_mut(), &[0, 1, 2, 3], 0.2, 1e-4, &|parameters| {
        cross_entropy(&reference::resnet(parameters, &input, 2, 2, 3).0, &labels)
    });
}

#[test]
fn cell() {
    let files = idx_files(4, 8, 8, 3);
    let (input, labels) = images(&files, 4, [1, 8, 8]);
    let text = "|conv3x3~0|+|avgpool3x3~0|conv1x1~1|+|skip~0|conv3x3~1|conv1x1~2|";
    let model = format!("{{ kind = \"cell\", channels = 2, stages = 2, architecture = {text:?} }}");
    let mut workload = build_with(&job(&model, IDX), &files);
    let path = text.parse::<CellEdges>().unwrap().0.concat();
    check(workload.as_mut(), &[0, 1, 2, 3], 0.2, 1e-4, &|parameters| {
        cross_entropy(&reference::cell(parameters, &input, &path, 2, 2, 3), &labels)
    });
}

#[test]
fn batch_norm_state_follows_its_definition() {
    let files = idx_files(4, 8, 8, 3);
    let (input, _) = images(&files, 4, [1, 8, 8]);
    let job = job("{ kind = \"resnet\", blocks = 1, width = 2 }", IDX);
    let mut workload = build_with(&job, &files);
    let (parameters, mut state) = shaken(workload.as_mut(), 0.2);
    state.iter_mut().enumerate().for_each(|(place, value)| *value += 0.01 * place as f32);
    let call = gradient(workload.as_mut(), (&parameters, &state, 1), &[0, 1, 2, 3], 0);
    let exact: Vec<f64> = parameters.iter().copied().map(f64::from).collect();
    let (_, statistics) = reference::resnet(&exact, &input, 1, 2, 3);
    assert_eq!(statistics.len(), state.len());
    for (place, statistic) in statistics.iter().enumerate() {
        let expected = 0.9 * f64::from(state[place]) + 0.1 * statistic;
        assert!((f64::from(call.state[place]) - expected).abs() < 1e-5 * expected.abs().max(1.0));
    }
    // One sample of the last stages may be one value per channel: the variance must stay finite.
    let files = idx_files(2, 4, 4, 2);
    let mut workload = build_with(&job, &files);
    let (parameters, state) = initial(workload.as_mut(), 0);
    let call = gradient(workload.as_mut(), (&parameters, &state, 1), &[0], 0);
    assert!(call.state.iter().chain(&call.gradient).all(|value| value.is_finite()));
}

#[test]
fn transformer() {
    let sizes = TransformerSizes { context: 5, width: 6, layers: 2, heads: 2 };
    // Few different bytes, so that rows of the embedding are used more than once.
    let text: Vec<u8> = b"abcabdabcaab dcb".to_vec();
    let tokens: Vec<u8> = text[..15].to_vec();
    let targets: Vec<u32> = text[1..].iter().map(|byte| u32::from(*byte)).collect();
    let job = job(
        "{ kind = \"transformer\", context = 5, width = 6, layers = 2, heads = 2 }",
        "{ kind = \"text\", path = \"t\", held_out = 0.0 }",
    );
    let mut workload = build_with(&job, &[("t", text)]);
    check(workload.as_mut(), &[0, 1, 2], 0.3, 1e-5, &|parameters| {
        cross_entropy(&reference::transformer(parameters, &tokens, &sizes), &targets) / 5.0
    });
}

/// The mask is a constant of the seed, so that differences of the crate's own loss, at one seed,
/// show whether forward and backward use the same one. In `f32`, hence the large step.
#[test]
fn dropout() {
    let job = job("{ kind = \"mlp\", hidden = [40, 30], dropout = 0.4 }", "{ kind = \"digits\" }");
    let mut workload = build_with(&job, &[]);
    let (mut parameters, _) = shaken(workload.as_mut(), 0.05);
    let samples: Vec<u64> = (0..8).collect();
    let call = gradient(workload.as_mut(), (&parameters, &[], 1), &samples, 11);
    let other = gradient(workload.as_mut(), (&parameters, &[], 1), &samples, 12);
    assert_ne!(call.gradient, other.gradient, "the seed must decide the mask");
    let mut numbers = Numbers(23);
    let (mut difference, mut norm) = (0.0, 0.0);
    for version in 0..300 {
        let place = numbers.below(parameters.len() as u64) as usize;
        let middle = parameters[place];
        let mut loss = |shift: f32, version: u64| {
            parameters[place] = middle + shift;
            gradient(workload.as_mut(), (&parameters, &[], version), &samples, 11).loss
        };
        let slope = (loss(1e-3, 10 + 2 * version) - loss(-1e-3, 11 + 2 * version)) / 2e-3;
        parameters[place] = middle;
        difference += (slope - f64::from(call.gradient[place])).powi(2);
        norm += slope.powi(2);
    }
    let error = (difference / norm).sqrt();
    println!("dropout: {error:.1e}");
    assert!(error < 1e-2, "{error}");
}

#[test]
fn a_wrong_gradient_is_noticed() {
    let files = idx_files(3, 8, 8, 3);
    let (input, labels) = images(&files, 3, [1, 8, 8]);
    let job = job("{ kind = \"convnet\", filters = [2, 3], hidden = [5, 4] }", IDX);
    let mut workload = build_with(&job, &files);
    let (parameters, state) = shaken(workload.as_mut(), 0.1);
    let mut call = gradient(workload.as_mut(), (&parameters, &state, 1), &[0, 1, 2], 0);
    let numeric = numeric(&parameters, &|parameters| {
        cross_entropy(&reference::convnet(parameters, &input, [2, 3], [5, 4], 2, 3), &labels)
    });
    // What a back-end with an average in the place of a maximum would give for the first layer.
    call.gradient[..50].iter_mut().for_each(|value| *value *= 0.25);
    let errors = errors(workload.layout(), &call.gradient, &numeric);
    assert!(errors[0].1 > 0.5 && errors[1].1 < 1e-4, "{errors:?}");
}
