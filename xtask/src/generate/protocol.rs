//! The generator itself: pure Rust from the protocol file to formatted code, with no `protoc`.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Compiles one protocol file to the code of its messages, its client and its server.
pub(super) fn compile(input: &Path) -> Result<String> {
    let folder = input.parent().context("the protocol file has no folder")?;
    let descriptors = protox::compile([input], [folder]).context("the protocol file is wrong")?;
    let output = std::env::temp_dir().join(format!("bellwether-generate-{}", std::process::id()));
    std::fs::create_dir_all(&output).with_context(|| format!("cannot create {}", output.display()))?;
    let code = generate(descriptors, &output);
    std::fs::remove_dir_all(&output).with_context(|| format!("cannot remove {}", output.display()))?;
    format(&code?)
}

/// One package makes one file in `output`.
fn generate(descriptors: tonic_prost_build::FileDescriptorSet, output: &Path) -> Result<String> {
    tonic_prost_build::configure()
        .out_dir(output)
        .emit_rerun_if_changed(false)
        .compile_fds(descriptors)
        .context("cannot generate code")?;
    let entries = std::fs::read_dir(output).with_context(|| format!("cannot list {}", output.display()))?;
    let files: Vec<_> = entries.collect::<std::io::Result<_>>().context("cannot list what was generated")?;
    match files.as_slice() {
        [file] => std::fs::read_to_string(file.path()).context("cannot read what was generated"),
        other => bail!("{} files were generated, not one; keep the protocol in one package", other.len()),
    }
}

/// Formats as the rest of the tree, which `cargo fmt --check` looks at as a whole.
fn format(code: &str) -> Result<String> {
    let mut rustfmt = Command::new("rustfmt")
        .args(["--edition", "2024", "--config-path"])
        .arg(crate::tree::root()?)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start rustfmt; install it with `rustup component add rustfmt`")?;
    let mut input = rustfmt.stdin.take().context("rustfmt takes no input")?;
    // All input is read before the first output is written, so this cannot block for ever.
    input.write_all(code.as_bytes()).context("cannot hand the code to rustfmt")?;
    drop(input);
    let output = rustfmt.wait_with_output().context("rustfmt did not end")?;
    if !output.status.success() {
        bail!("rustfmt refuses the generated code");
    }
    String::from_utf8(output.stdout).context("rustfmt printed something other than UTF-8")
}
