//! `cargo xtask wheel`: what `pip install` installs, written to `target/wheels` and checked where that is asked for.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow};

use crate::python::environment::{self, Interpreter};
use crate::tree;

/// Builds the wheel. With `check`, installs it as a user would into a new environment, and runs its tests there.
pub(crate) fn run(check: bool) -> Result<bool> {
    let root = tree::root()?;
    let interpreter = environment::interpreter().map_err(|why| anyhow!(why))?;
    let wheels = tree::target()?.join("wheels");
    let Some(name) = built(&root, &interpreter, &wheels)? else { return Ok(false) };
    let wheel = wheels.join(&name);
    println!("{}", wheel.display());
    if !check {
        return Ok(true);
    }
    let tests = root.join("python/tests/test_wheel.py");
    let status = Command::new(&interpreter.program)
        .arg(&tests)
        .env("BELLWETHER_WHEEL", &wheel)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .status()
        .with_context(|| format!("cannot start {}", interpreter.program))?;
    Ok(status.success())
}

/// Runs the package's build back end; the wheel's file name, or `None` where it failed.
fn built(root: &Path, interpreter: &Interpreter, wheels: &Path) -> Result<Option<String>> {
    let output = Command::new(&interpreter.program)
        .arg(root.join("python/wheel_backend.py"))
        .arg(wheels)
        .env("CARGO", tree::cargo().get_program())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start {}", interpreter.program))?;
    let name = String::from_utf8(output.stdout).context("the build back end printed no UTF-8")?;
    Ok(output.status.success().then(|| name.trim().to_owned()))
}
