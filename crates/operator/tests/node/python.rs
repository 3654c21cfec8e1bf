//! A Python with a framework, in pods whose image has none.
//!
//! Pods find it in folders of this machine, which their template mounts: an image with a framework would be as large as
//! that. So these are pods of a user's image, too, into which the operator brings its program.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

/// An image of the node that holds one program, which is linked statically, and nothing else.
pub(crate) const BARE_IMAGE: &str = "local.test/pod:1";

pub(crate) struct Python {
    pub(crate) program: PathBuf,
    /// A folder that its pods share, with what Python compiles.
    pub(crate) folder: PathBuf,
    /// Folders of this machine that hold Python and its libraries.
    libraries: Vec<PathBuf>,
}

impl Python {
    /// Finds the one with the framework; `None` after saying that there is none.
    pub(crate) fn find(framework: &str, folder: &Path) -> Option<Python> {
        let variable = format!("BELLWETHER_TEST_{}_PYTHON", framework.to_uppercase());
        let Some(program) = std::env::var_os(&variable).map(PathBuf::from) else {
            eprintln!("skipped: {variable} names no Python; `cargo xtask kubernetes --all test` makes one");
            return None;
        };
        let folder = folder.join("script");
        std::fs::create_dir_all(&folder).unwrap();
        let mut python = Python { program, folder, libraries: Vec::new() };
        let said =
            python.says(&format!("import sys, {framework}; print(sys.prefix); print(sys.base_prefix)"));
        let system = ["/usr", "/lib", "/lib64"].into_iter();
        python.bring(system.chain(said.lines()).map(PathBuf::from));
        Some(python)
    }

    /// What a program prints. Python compiles here what pods with a part of a processor would take long for.
    pub(crate) fn says(&self, program: &str) -> String {
        let mut command = Command::new(&self.program);
        command.args(["-c", program]).env("PYTHONPYCACHEPREFIX", self.compiled());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn compiled(&self) -> PathBuf {
        self.folder.join("compiled")
    }

    /// Lets pods find these folders as well, as far as there are such.
    pub(crate) fn bring(&mut self, folders: impl Iterator<Item = PathBuf>) {
        self.libraries.extend(folders.filter(|path| path.exists()));
        let all = self.libraries.clone();
        self.libraries.retain(|path| !all.iter().any(|other| path != other && path.starts_with(other)));
        self.libraries.sort();
        self.libraries.dedup();
    }

    /// Adds its folders, and the variables that it wants, to a template.
    pub(crate) fn mount(&self, template: &mut Value) {
        let folders = self.libraries.iter().map(|path| (path, true)).chain([(&self.folder, false)]);
        let (mut volumes, mut mounts) = (Vec::new(), Vec::new());
        for (index, (path, read_only)) in folders.enumerate() {
            let name = format!("folder-{index}");
            volumes.push(json!({"name": name, "hostPath": {"path": path.canonicalize().unwrap()}}));
            mounts.push(json!({"name": name, "mountPath": path, "readOnly": read_only}));
        }
        let variables = [("OMP_NUM_THREADS", "1"), ("TF_CPP_MIN_LOG_LEVEL", "1"), ("HOME", "/tmp")];
        let mut variables: Vec<Value> =
            variables.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
        variables.push(json!({"name": "PYTHONPYCACHEPREFIX", "value": self.compiled()}));
        let spec = &mut template["spec"];
        add(&mut spec["volumes"], volumes);
        add(&mut spec["containers"][0]["volumeMounts"], mounts);
        add(&mut spec["containers"][0]["env"], variables);
    }
}

/// Appends to a list, which need not be there.
pub(crate) fn add(list: &mut Value, more: Vec<Value>) {
    let before = list.as_array().cloned().unwrap_or_default();
    *list = json!([before, more].concat());
}
