//! Forward passes of all models in plain `f64` loops, written from their definitions and apart from
//! the crate: the loss that they compute is differentiated numerically.

#![allow(unreachable_pub, reason = "a module of the tests")]

use bellwether_core::job::CellOperation;

/// Numbers with a shape, innermost dimension last.
#[derive(Clone)]
pub struct Array {
    pub shape: Vec<usize>,
    pub values: Vec<f64>,
}

impl Array {
    pub fn new(shape: &[usize], values: Vec<f64>) -> Self {
        assert_eq!(shape.iter().product::<usize>(), values.len());
        Array { shape: shape.to_vec(), values }
    }

    fn map(mut self, f: impl Fn(f64) -> f64) -> Self {
        self.values.iter_mut().for_each(|value| *value = f(*value));
        self
    }

    fn add(mut self, other: &Array) -> Self {
        self.values.iter_mut().zip(&other.values).for_each(|(value, more)| *value += more);
        self
    }

    fn relu(self) -> Self {
        self.map(|value| value.max(0.0))
    }
}

/// Takes parameters one after another from the flat vector.
pub struct Cursor<'a>(pub &'a [f64]);

impl<'a> Cursor<'a> {
    fn take(&mut self, len: usize) -> &'a [f64] {
        let (taken, rest) = self.0.split_at(len);
        self.0 = rest;
        taken
    }

    fn linear(&mut self, input: &Array, outputs: usize) -> Array {
        let [rows, inputs] = input.shape[..] else { panic!("rows of features") };
        let (weight, bias) = (self.take(inputs * outputs), self.take(outputs));
        let mut values = Vec::with_capacity(rows * outputs);
        for row in input.values.chunks(inputs) {
            for output in 0..outputs {
                let dot: f64 = (0..inputs).map(|input| row[input] * weight[input * outputs + output]).sum();
                values.push(dot + bias[output]);
            }
        }
        Array::new(&[rows, outputs], values)
    }

    fn convolution(&mut self, input: &Array, outputs: usize, options: [usize; 3], biased: bool) -> Array {
        let [samples, inputs, height, width] = input.shape[..] else { panic!("images") };
        let [kernel, stride, padding] = options;
        let weight = self.take(outputs * inputs * kernel * kernel);
        let bias = if biased { self.take(outputs).to_vec() } else { vec![0.0; outputs] };
        let size = |pixels: usize| (pixels + 2 * padding - kernel) / stride + 1;
        let (rows, columns) = (size(height), size(width));
        let mut values = vec![];
        for sample in 0..samples {
            for (output, bias) in bias.iter().enumerate() {
                for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))) {
                    let mut sum = *bias;
                    for channel in 0..inputs {
                        for (down, right) in (0..kernel * kernel).map(|tap| (tap / kernel, tap % kernel)) {
                            let (y, x) = (row * stride + down, column * stride + right);
                            if (padding..height + padding).contains(&y)
                                && (padding..width + padding).contains(&x)
                            {
                                let pixel = ((sample * inputs + channel) * height + y - padding) * width + x
                                    - padding;
                                let tap = ((output * inputs + channel) * kernel + down) * kernel + right;
                                sum += input.values[pixel] * weight[tap];
                            }
                        }
                    }
                    values.push(sum);
                }
            }
        }
        Array::new(&[samples, outputs, rows, columns], values)
    }

    fn layer_norm(&mut self, input: &Array) -> Array {
        let width = input.shape[1];
        let (scale, shift) = (self.take(width), self.take(width));
        let mut output = input.clone();
        for row in output.values.chunks_mut(width) {
            let mean = row.iter().sum::<f64>() / width as f64;
            let variance = row.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / width as f64;
            for (place, value) in row.iter_mut().enumerate() {
                *value = (*value - mean) / (variance + 1e-5).sqrt() * scale[place] + shift[place];
            }
        }
        output
    }

    /// Training mode; pushes the batch's mean and unbiased variance of each channel.
    fn batch_norm(&mut self, input: &Array, statistics: &mut Vec<f64>) -> Array {
        let [samples, channels, height, width] = input.shape[..] else { panic!("images") };
        let (scale, shift) = (self.take(channels), self.take(channels));
        let area = height * width;
        let mut output = input.clone();
        let (mut means, mut variances) = (vec![], vec![]);
        for channel in 0..channels {
            let places: Vec<usize> = (0..samples)
                .flat_map(|sample| (0..area).map(move |pixel| (sample * channels + channel) * area + pixel))
                .collect();
            let count = places.len() as f64;
            let mean = places.iter().map(|place| input.values[*place]).sum::<f64>() / count;
            let squares = places.iter().map(|place| (input.values[*place] - mean).powi(2)).sum::<f64>();
            for place in places {
                output.values[place] = (input.values[place] - mean) / (squares / count + 1e-5).sqrt()
                    * scale[channel]
                    + shift[channel];
            }
            means.push(mean);
            variances.push(if count > 1.0 { squares / (count - 1.0) } else { squares });
        }
        statistics.extend(means);
        statistics.extend(variances);
        output
    }
}

fn max_pool(input: &Array) -> Array {
    let [samples, channels, height, width] = input.shape[..] else { panic!("images") };
    let (rows, columns) = (height / 2, width / 2);
    let mut values = vec![];
    for map in input.values.chunks(height * width) {
        for place in 0..rows * columns {
            let (row, column) = (2 * (place / columns), 2 * (place % columns));
            let at = |down: usize, right: usize| map[(row + down) * width + column + right];
            values.push(at(0, 0).max(at(0, 1)).max(at(1, 0)).max(at(1, 1)));
        }
    }
    Array::new(&[samples, channels, rows, columns], values)
}

/// Sum over rows of −log softmax\[target\].
pub fn cross_entropy(scores: &Array, targets: &[u32]) -> f64 {
    let classes = scores.shape[1];
    let row_loss = |(row, target): (&[f64], &u32)| {
        let total: f64 = row.iter().map(|score| score.exp()).sum();
        total.ln() - row[*target as usize]
    };
    scores.values.chunks(classes).zip(targets).map(row_loss).sum()
}

pub fn mlp(parameters: &[f64], input: &Array, hidden: &[usize], classes: usize) -> Array {
    let mut cursor = Cursor(parameters);
    let mut activations = input.clone();
    for width in hidden {
        activations = cursor.linear(&activations, *width).relu();
    }
    let scores = cursor.linear(&activations, classes);
    assert!(cursor.0.is_empty());
    scores
}

pub fn convnet(
    parameters: &[f64],
    input: &Array,
    filters: [usize; 2],
    hidden: [usize; 2],
    second_padding: usize,
    classes: usize,
) -> Array {
    let mut cursor = Cursor(parameters);
    let maps = max_pool(&cursor.convolution(input, filters[0], [5, 1, 2], true).relu());
    let maps = max_pool(&cursor.convolution(&maps, filters[1], [5, 1, second_padding], true).relu());
    let flat = maps.shape[1..].iter().product();
    let activations = Array::new(&[maps.shape[0], flat], maps.values);
    let activations = cursor.linear(&activations, hidden[0]).relu();
    let activations = cursor.linear(&activations, hidden[1]).relu();
    let scores = cursor.linear(&activations, classes);
    assert!(cursor.0.is_empty());
    scores
}

/// Scores, and the batch's statistics in the order of the state.
pub fn resnet(
    parameters: &[f64],
    input: &Array,
    blocks: usize,
    width: usize,
    classes: usize,
) -> (Array, Vec<f64>) {
    let mut cursor = Cursor(parameters);
    let mut statistics = vec![];
    let maps = cursor.convolution(input, width, [3, 1, 1], false);
    let mut maps = cursor.batch_norm(&maps, &mut statistics).relu();
    for stage in 0..3 {
        for block in 0..blocks {
            let channels = width << stage;
            let widens = stage > 0 && block == 0;
            let stride = if widens { 2 } else { 1 };
            let inner = cursor.convolution(&maps, channels, [3, stride, 1], false);
            let inner = cursor.batch_norm(&inner, &mut statistics).relu();
            let inner = cursor.convolution(&inner, channels, [3, 1, 1], false);
            let inner = cursor.batch_norm(&inner, &mut statistics);
            let shortcut = if widens {
                let projected = cursor.convolution(&maps, channels, [1, 2, 0], false);
                cursor.batch_norm(&projected, &mut statistics)
            } else {
                maps
            };
            maps = inner.add(&shortcut).relu();
        }
    }
    let area: usize = maps.shape[2..].iter().product();
    let averages = maps.values.chunks(area).map(|map| map.iter().sum::<f64>() / area as f64).collect();
    let scores = cursor.linear(&Array::new(&maps.shape[..2], averages), classes);
    assert!(cursor.0.is_empty());
    (scores, statistics)
}

fn plain_norm(input: &Array) -> Array {
    let channels = input.shape[1];
    let neutral = [vec![1.0; channels], vec![0.0; channels]].concat();
    Cursor(&neutral).batch_norm(input, &mut vec![])
}

/// The mean over the pixels of a 3×3 window that lie in the image.
fn average_pool(input: &Array) -> Array {
    let [samples, channels, height, width] = input.shape[..] else { panic!("images") };
    let mut values = vec![];
    for map in input.values.chunks(height * width).take(samples * channels) {
        for (row, column) in (0..height).flat_map(|row| (0..width).map(move |column| (row, column))) {
            let rows = row.saturating_sub(1)..(row + 2).min(height);
            let columns = column.saturating_sub(1)..(column + 2).min(width);
            let count = rows.len() * columns.len();
            let window = rows.flat_map(|row| columns.clone().map(move |column| map[row * width + column]));
            values.push(window.sum::<f64>() / count as f64);
        }
    }
    Array::new(&input.shape, values)
}

/// Stages of one cell of four nodes each, with this operation on each edge.
pub fn cell(
    parameters: &[f64],
    input: &Array,
    path: &[CellOperation],
    channels: usize,
    stages: usize,
    classes: usize,
) -> Array {
    let mut cursor = Cursor(parameters);
    let mut maps = plain_norm(&cursor.convolution(input, channels, [3, 1, 1], false));
    for stage in 0..stages {
        let channels = channels << stage;
        if stage > 0 {
            let inner = plain_norm(&cursor.convolution(&maps.clone().relu(), channels, [3, 2, 1], false));
            let inner = plain_norm(&cursor.convolution(&inner.relu(), channels, [3, 1, 1], false));
            maps = inner.add(&plain_norm(&cursor.convolution(&maps, channels, [1, 2, 0], false)));
        }
        let mut nodes = vec![maps];
        let mut edge = 0;
        for target in 1..4 {
            let mut sum = nodes[0].clone().map(|_| 0.0);
            for node in &nodes[..target] {
                let mut convolved = |kernel: usize| {
                    plain_norm(&cursor.convolution(
                        &node.clone().relu(),
                        channels,
                        [kernel, 1, kernel / 2],
                        false,
                    ))
                };
                sum = match path[edge] {
                    CellOperation::None => sum,
                    CellOperation::Skip => sum.add(node),
                    CellOperation::Conv1x1 => sum.add(&convolved(1)),
                    CellOperation::Conv3x3 => sum.add(&convolved(3)),
                    CellOperation::AvgPool3x3 => sum.add(&average_pool(node)),
                };
                edge += 1;
            }
            nodes.push(sum);
        }
        maps = nodes.remove(3);
    }
    let maps = plain_norm(&maps).relu();
    let area: usize = maps.shape[2..].iter().product();
    let averages = maps.values.chunks(area).map(|map| map.iter().sum::<f64>() / area as f64).collect();
    let scores = cursor.linear(&Array::new(&maps.shape[..2], averages), classes);
    assert!(cursor.0.is_empty());
    scores
}

pub struct TransformerSizes {
    pub context: usize,
    pub width: usize,
    pub layers: usize,
    pub heads: usize,
}

pub fn transformer(parameters: &[f64], tokens: &[u8], sizes: &TransformerSizes) -> Array {
    let TransformerSizes { context, width, layers, heads } = *sizes;
    let mut cursor = Cursor(parameters);
    let (table, positions) = (cursor.take(256 * width), cursor.take(context * width));
    let embed = |(place, token): (usize, &u8)| {
        let start = place % context * width;
        let row = &table[usize::from(*token) * width..][..width];
        row.iter()
            .zip(&positions[start..start + width])
            .map(|(value, more)| value + more)
            .collect::<Vec<f64>>()
    };
    let mut stream = Array::new(&[tokens.len(), width], tokens.iter().enumerate().flat_map(embed).collect());
    for _ in 0..layers {
        let normalised = cursor.layer_norm(&stream);
        let projected = cursor.linear(&normalised, 3 * width);
        let attended = attention(&projected, context, width, heads);
        stream = stream.add(&cursor.linear(&attended, width));
        let normalised = cursor.layer_norm(&stream);
        let inner = cursor.linear(&normalised, 4 * width).map(|x| {
            // The tanh form, as its paper (Hendrycks, Gimpel 2016) gives it.
            0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
        });
        stream = stream.add(&cursor.linear(&inner, width));
    }
    let normalised = cursor.layer_norm(&stream);
    let scores = cursor.linear(&normalised, 256);
    assert!(cursor.0.is_empty());
    scores
}

fn attention(projected: &Array, context: usize, width: usize, heads: usize) -> Array {
    let rows = projected.shape[0];
    let head = width / heads;
    let mut values = vec![0.0; rows * width];
    for row in 0..rows {
        let first = row / context * context;
        for part in 0..heads {
            let at = |row: usize, kind: usize, place: usize| {
                projected.values[row * 3 * width + kind * width + part * head + place]
            };
            let weights: Vec<f64> = (first..=row)
                .map(|other| {
                    let dot: f64 = (0..head).map(|place| at(row, 0, place) * at(other, 1, place)).sum();
                    (dot / (head as f64).sqrt()).exp()
                })
                .collect();
            let total: f64 = weights.iter().sum();
            for place in 0..head {
                let sum: f64 = weights
                    .iter()
                    .enumerate()
                    .map(|(other, weight)| weight * at(first + other, 2, place))
                    .sum();
                values[row * width + part * head + place] = sum / total;
            }
        }
    }
    Array::new(&[rows, width], values)
}
