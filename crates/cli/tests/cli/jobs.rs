//! Small jobs of every kind of model and optimizer, and what an undisturbed run makes of them.

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock};

use crate::harness::Scene;

/// A job and the files it reads.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Recipe {
    /// The job file, but for its name and length.
    body: &'static str,
    steps: u64,
    nodes: u32,
}

impl Recipe {
    /// The same job with another length.
    pub(crate) fn steps(self, steps: u64) -> Recipe {
        Recipe { steps, ..self }
    }

    /// The same job with another number of virtual nodes.
    pub(crate) fn nodes(self, nodes: u32) -> Recipe {
        Recipe { nodes, ..self }
    }

    /// The job file.
    pub(crate) fn text(&self) -> String {
        format!(
            "name = \"job\"\nseed = 7\nsteps = {}\n[batch]\nsize = {}\nvirtual_nodes = {}\n{}",
            self.steps,
            4 * self.nodes,
            self.nodes,
            self.body
        )
    }

    /// A scene with the job in it.
    pub(crate) fn scene(&self) -> Scene {
        let scene = Scene::new(&self.text());
        scene.write("text.txt", include_str!("jobs.rs"));
        scene
    }

    /// The digest of an undisturbed run with one worker; trained once for all tests that ask.
    pub(crate) fn digest(&self) -> String {
        static KNOWN: OnceLock<Mutex<BTreeMap<Recipe, String>>> = OnceLock::new();
        let known = KNOWN.get_or_init(Mutex::default);
        if let Some(digest) = known.lock().expect("no test panics with this lock").get(self) {
            return digest.clone();
        }
        // A device that does not sleep fills the same gradients.
        let awake = if self.body.contains("step_time") { &["--set", "model.step_time=0s"][..] } else { &[] };
        let summary = self.scene().train(&[&["--workers", "1"], awake].concat()).summary();
        assert_eq!(
            (summary.outcome.word(), summary.steps),
            ("finished", self.steps),
            "{}",
            summary.outcome.reason()
        );
        let digest = summary.params_digest.expect("a finished run has a digest");
        known.lock().expect("no test panics with this lock").insert(self.clone(), digest.clone());
        digest
    }
}

/// Fully connected, with momentum.
pub(crate) fn momentum() -> Recipe {
    let body = "[model]\nkind = \"mlp\"\nhidden = [48]\n[data]\nkind = \"digits\"\n\
        [optimizer]\nkind = \"sgd\"\nlearning_rate = 0.05\nmomentum = 0.9\n[evaluation]\nevery_steps = 150\n";
    Recipe { body, steps: 300, nodes: 8 }
}

/// Fully connected, with dropout and Adam, on invented data.
pub(crate) fn adam_dropout() -> Recipe {
    let body = "[model]\nkind = \"mlp\"\nhidden = [32]\ndropout = 0.2\n\
        [data]\nkind = \"teacher\"\nsamples = 1000\nfeatures = 12\nclasses = 4\n\
        [optimizer]\nkind = \"adam\"\nlearning_rate = 0.01\n";
    Recipe { body, steps: 300, nodes: 8 }
}

/// Residual, with batch normalisation and plain gradient descent.
pub(crate) fn batch_norm() -> Recipe {
    let body = "[model]\nkind = \"resnet\"\nblocks = 1\nwidth = 4\n[data]\nkind = \"digits\"\n\
        [optimizer]\nkind = \"sgd\"\nlearning_rate = 0.05\n";
    Recipe { body, steps: 60, nodes: 8 }
}

/// A transformer with dropout and Adam, gradients clipped.
pub(crate) fn transformer() -> Recipe {
    let body = "[model]\nkind = \"transformer\"\ncontext = 8\nwidth = 16\nlayers = 1\nheads = 2\ndropout = 0.1\n\
        [data]\nkind = \"text\"\npath = \"text.txt\"\n\
        [optimizer]\nkind = \"adam\"\nlearning_rate = 0.003\nclip_norm = 1.0\n";
    Recipe { body, steps: 100, nodes: 8 }
}

/// No network, but enough parameters that most of the time goes into exchanging them.
pub(crate) fn heavy() -> Recipe {
    let body = "[model]\nkind = \"synthetic\"\nstep_time = \"1ms\"\nparameters = \"8MiB\"\n\
        [data]\nkind = \"indices\"\nsamples = 1000\n\
        [optimizer]\nkind = \"sgd\"\nlearning_rate = 0.1\nmomentum = 0.9\n";
    Recipe { body, steps: 60, nodes: 4 }
}

/// As many parameters in eight layers, whose gradients get ready one after another.
pub(crate) fn layered() -> Recipe {
    let body = "[model]\nkind = \"synthetic\"\nstep_time = \"12ms\"\nparameters = \"8MiB\"\nlayers = 8\n\
        [data]\nkind = \"indices\"\nsamples = 1000\n\
        [optimizer]\nkind = \"adam\"\nlearning_rate = 0.1\n";
    Recipe { body, steps: 60, nodes: 4 }
}

/// No network, and time enough for whatever a test does meanwhile.
pub(crate) fn patient() -> Recipe {
    let body = "[model]\nkind = \"synthetic\"\nstep_time = \"10ms\"\nparameters = \"64KiB\"\n\
        [data]\nkind = \"indices\"\nsamples = 1000\n\
        [optimizer]\nkind = \"sgd\"\nlearning_rate = 0.1\nmomentum = 0.9\n";
    Recipe { body, steps: 500, nodes: 4 }
}

/// No network: steps of at least `milliseconds`, to have time for something between two of them.
pub(crate) fn slow(milliseconds: u32) -> String {
    format!(
        "name = \"job\"\nsteps = 100\n[batch]\nsize = 8\nvirtual_nodes = 4\n\
        [model]\nkind = \"synthetic\"\nstep_time = \"{milliseconds}ms\"\nparameters = \"64KiB\"\n\
        [data]\nkind = \"indices\"\nsamples = 1000\n[optimizer]\nkind = \"sgd\"\nlearning_rate = 0.1\n"
    )
}
