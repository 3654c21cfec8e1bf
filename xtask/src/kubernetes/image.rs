//! Images of containers as archives that `ctr images import` reads: one layer of given files, without a registry.
//!
//! The archive is an OCI image layout (image-spec 1.0) in a tar file (POSIX ustar).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::source::sha256;

/// The unit of a tar file.
const BLOCK: usize = 512;

/// Kinds of entries.
const FILE: u8 = b'0';
const FOLDER: u8 = b'5';

/// The annotation by which containerd names what it imports.
const NAME: &str = "io.containerd.image.name";

const CONFIG_TYPE: &str = "application/vnd.oci.image.config.v1+json";
const LAYER_TYPE: &str = "application/vnd.oci.image.layer.v1.tar";
const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";

/// An image to be written.
pub(crate) struct Image {
    /// As pods name it, with a tag.
    name: String,
    entrypoint: String,
    /// Files by their paths without a leading slash, with their modes.
    files: BTreeMap<String, (u32, Vec<u8>)>,
}

impl Image {
    /// An image that runs a program of this machine, with the libraries that it is linked to.
    pub(crate) fn of_program(name: &str, program: &Path) -> Result<Image> {
        let file = program.file_name().context("a program has a name")?.to_string_lossy();
        Image::of_programs(name, &[(&file, program)])
    }

    /// The same with several programs, at these paths; the first one is what the image runs.
    pub(crate) fn of_programs(name: &str, programs: &[(&str, &Path)]) -> Result<Image> {
        let first = programs.first().context("an image has a program")?.0;
        let mut image =
            Image { name: name.to_owned(), entrypoint: format!("/{first}"), files: BTreeMap::new() };
        for (path, program) in programs {
            image.add(path, program)?;
            // It fails for a static program, which needs none.
            let libraries = Command::new("ldd").arg(program).output().context("cannot start ldd")?;
            for library in libraries_in(&String::from_utf8_lossy(&libraries.stdout)) {
                image.add(library.trim_start_matches('/'), Path::new(library))?;
            }
        }
        // An archive has the folders of its files.
        image.files.insert("tmp/.keep".to_owned(), (0o644, Vec::new()));
        Ok(image)
    }

    fn add(&mut self, path: &str, file: &Path) -> Result<()> {
        let bytes = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        let mode = fs::metadata(file)?.permissions().mode() & 0o777;
        self.files.insert(path.to_owned(), (mode, bytes));
        Ok(())
    }

    /// Writes the archive.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let mut blobs = BTreeMap::new();
        let mut blob = |bytes: Vec<u8>, kind: &str| -> Result<Value> {
            let digest = sha256(&bytes)?;
            let descriptor =
                json!({ "mediaType": kind, "digest": format!("sha256:{digest}"), "size": bytes.len() });
            blobs.insert(format!("blobs/sha256/{digest}"), (0o644, bytes));
            Ok(descriptor)
        };
        let layer = blob(tar(&self.files)?, LAYER_TYPE)?;
        // A layer that is not compressed has the same digest inside and outside.
        let config = json!({
            "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
            "os": "linux",
            "config": { "Entrypoint": [self.entrypoint], "WorkingDir": "/" },
            "rootfs": { "type": "layers", "diff_ids": [layer["digest"]] },
        });
        let config = blob(config.to_string().into_bytes(), CONFIG_TYPE)?;
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST_TYPE, "config": config, "layers": [layer],
        });
        let mut manifest = blob(manifest.to_string().into_bytes(), MANIFEST_TYPE)?;
        manifest["annotations"] = json!({ NAME: self.name });
        let index = json!({ "schemaVersion": 2, "manifests": [manifest] });
        let layout = json!({ "imageLayoutVersion": "1.0.0" });
        blobs.insert("index.json".to_owned(), (0o644, index.to_string().into_bytes()));
        blobs.insert("oci-layout".to_owned(), (0o644, layout.to_string().into_bytes()));
        fs::write(path, tar(&blobs)?).with_context(|| format!("cannot write {}", path.display()))
    }
}

/// The paths in what `ldd` prints: `name => path (address)`, or `path (address)` for the loader.
fn libraries_in(printed: &str) -> impl Iterator<Item = &str> {
    printed.lines().filter_map(|line| {
        let path = line.split_once("=>").map_or(line, |(_, path)| path).trim();
        path.starts_with('/').then(|| path.split(" (").next().unwrap_or(path))
    })
}

/// A tar file of these files, and of the folders above them.
fn tar(files: &BTreeMap<String, (u32, Vec<u8>)>) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let above = |path: &String| path.match_indices('/').map(|(end, _)| path[..end + 1].to_owned()).collect();
    let folders: BTreeSet<String> = files.keys().flat_map::<Vec<String>, _>(above).collect();
    for folder in &folders {
        entry(&mut out, folder, 0o755, FOLDER, &[])?;
    }
    for (path, (mode, bytes)) in files {
        entry(&mut out, path, *mode, FILE, bytes)?;
    }
    // Two empty blocks say that it ends.
    out.resize(out.len() + 2 * BLOCK, 0);
    Ok(out)
}

fn entry(out: &mut Vec<u8>, path: &str, mode: u32, kind: u8, bytes: &[u8]) -> Result<()> {
    ensure!(path.len() <= 100, "`{path}` is longer than the 100 bytes of a name in a tar file");
    // Each name has a field in octal digits that ends with a zero byte; the order is that of the standard.
    let mut header = [0; BLOCK];
    let mut put = |offset: usize, field: &[u8]| header[offset..offset + field.len()].copy_from_slice(field);
    put(0, path.as_bytes());
    put(100, format!("{mode:07o}").as_bytes());
    put(108, b"0000000");
    put(116, b"0000000");
    put(124, format!("{:011o}", bytes.len()).as_bytes());
    put(136, b"00000000000");
    put(148, b"        ");
    put(156, &[kind]);
    put(257, b"ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    if header[135] != 0 {
        bail!("`{path}` is larger than the 8 GiB of a file in a tar file");
    }
    out.extend(header);
    out.extend(bytes);
    out.resize(out.len().next_multiple_of(BLOCK), 0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files() -> BTreeMap<String, (u32, Vec<u8>)> {
        let file = |path: &str, mode, bytes: &[u8]| (path.to_owned(), (mode, bytes.to_vec()));
        [file("bin/program", 0o755, &[7; 1000]), file("etc/a/empty", 0o600, b"")].into()
    }

    #[test]
    fn the_tar_of_the_machine_reads_what_is_written() {
        let path = std::env::temp_dir().join(format!("bellwether-image-{}.tar", std::process::id()));
        fs::write(&path, tar(&files()).unwrap()).unwrap();
        let listed = Command::new("tar").args(["--numeric-owner", "-tvf"]).arg(&path).output().unwrap();
        fs::remove_file(path).unwrap();
        let listed = String::from_utf8(listed.stdout).unwrap();
        let words = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            [words[0], words[1], words[2], words[words.len() - 1]].join(" ")
        };
        let lines: Vec<String> = listed.lines().map(words).collect();
        assert_eq!(
            lines,
            [
                "drwxr-xr-x 0/0 0 bin/",
                "drwxr-xr-x 0/0 0 etc/",
                "drwxr-xr-x 0/0 0 etc/a/",
                "-rwxr-xr-x 0/0 1000 bin/program",
                "-rw------- 0/0 0 etc/a/empty",
            ]
        );
    }

    #[test]
    fn the_manifest_is_named_by_its_digest_and_the_image_by_its_name() {
        let path = std::env::temp_dir().join(format!("bellwether-oci-{}.tar", std::process::id()));
        let image = Image {
            name: "local.test/a:1".to_owned(),
            entrypoint: "/bin/program".to_owned(),
            files: files(),
        };
        image.write(&path).unwrap();
        let read = |name: &str| {
            let output = Command::new("tar").arg("-xOf").arg(&path).arg(name).output().unwrap().stdout;
            (sha256(&output).unwrap(), serde_json::from_slice::<Value>(&output).unwrap())
        };
        let manifest = read("index.json").1["manifests"][0].clone();
        assert_eq!(manifest["annotations"][NAME], "local.test/a:1");
        let digest = manifest["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap().to_owned();
        let (found, manifest) = read(&format!("blobs/sha256/{digest}"));
        assert_eq!(found, digest);
        let config = manifest["config"]["digest"].as_str().unwrap().replace(':', "/");
        assert_eq!(
            read(&format!("blobs/{config}")).1["rootfs"]["diff_ids"][0],
            manifest["layers"][0]["digest"]
        );
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn libraries_are_found_in_what_ldd_prints() {
        let printed =
            "\tlinux-vdso.so.1 (0x1)\n\tlibc.so.6 => /lib/libc.so.6 (0x2)\n\t/lib64/ld.so.2 (0x3)\n";
        assert_eq!(libraries_in(printed).collect::<Vec<_>>(), ["/lib/libc.so.6", "/lib64/ld.so.2"]);
        assert_eq!(libraries_in("\tstatically linked\n").count(), 0);
    }
}
