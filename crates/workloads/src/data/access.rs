//! How the files of a data set are reached: whole, into memory, or by ranges when samples are asked for.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use bellwether_core::InputError;
use bellwether_core::job::{Data, Shards as Named};

use super::gzip;
use super::kept::Kept;
use super::shard::Format;
use super::source::{FileSource, Files, Source, unreadable};
use super::streamed::{Plan, Streamed};
use super::table::Table;

/// Bytes of files beyond which samples stay in them, unless the job says otherwise.
const MEMORY_BYTES: u64 = 1 << 30;

/// The caller's way to reach files.
#[derive(Clone, Copy)]
pub(crate) enum Access<'a> {
    /// It reads them whole.
    Whole(&'a dyn Fn(&Path) -> io::Result<Vec<u8>>),
    /// It opens them.
    Files(&'a Arc<dyn Files>),
}

/// How the files of one data set are read.
pub(super) struct Reading<'a> {
    access: Access<'a>,
    is_streamed: bool,
    /// Under which name what was found out is kept.
    name: String,
    open_count: Arc<AtomicUsize>,
}

/// The files of each shard.
pub(super) type Groups = Vec<Vec<PathBuf>>;

impl<'a> Reading<'a> {
    /// Decides how the files of `data` are read; `context` is the window of a text.
    pub(super) fn new(data: &Data, context: usize, access: Access<'a>) -> Result<Reading<'a>, InputError> {
        let open_count = Arc::default();
        let mut reading = Reading { access, is_streamed: false, name: String::new(), open_count };
        let Access::Files(files) = access else {
            if data.streamed() == Some(true) {
                return Err(InputError::new("data.streamed", "this program reads files whole")
                    .hint("leave data.streamed out"));
            }
            return Ok(reading);
        };
        if data.streamed() == Some(false) {
            return Ok(reading);
        }
        let (mut bytes, mut packed, mut name) = (0, None, blake3::Hasher::new());
        name.update(format!("{} {context} {data:?}", env!("CARGO_PKG_VERSION")).as_bytes());
        let (mut paths, mut named) = (Vec::new(), data.clone());
        for path in named.paths() {
            paths.extend(reading.expand(path)?);
        }
        for path in paths {
            let source = Source::File(FileSource::open(&path, files, &reading.open_count)?);
            if source.some_at(0, 2)? == [0x1f, 0x8b] {
                packed = packed.or(Some(path.clone()));
            }
            bytes += source.len();
            let Source::File(file) = &source else { continue };
            name.update(format!("{path:?} {:?}\n", file.version()).as_bytes());
        }
        reading.is_streamed = data.streamed().unwrap_or(bytes > MEMORY_BYTES && packed.is_none());
        reading.name = name.finalize().to_hex()[..32].to_owned();
        match packed.filter(|_| reading.is_streamed) {
            Some(path) => Err(InputError::new(
                path.display().to_string(),
                "is packed by gzip, so that no sample in it can be read by itself",
            )
            .hint("unpack it, or leave data.streamed out")),
            None => Ok(reading),
        }
    }

    /// Reads every file into memory.
    pub(super) fn into_memory(access: Access<'a>) -> Reading<'a> {
        Reading { access, is_streamed: false, name: String::new(), open_count: Arc::default() }
    }

    /// Whether samples stay in the files.
    pub(super) fn is_streamed(&self) -> bool {
        self.is_streamed
    }

    /// The files that a path stands for: itself, or all that its pattern describes, sorted by name.
    fn expand(&self, path: &Path) -> Result<Vec<PathBuf>, InputError> {
        let Some(pattern) = path.file_name().filter(|_| Named::is_pattern(path)) else {
            return Ok(vec![path.into()]);
        };
        let place = path.display().to_string();
        let Access::Files(files) = self.access else {
            return Err(InputError::new(place, "this program knows no patterns").hint("name each file"));
        };
        let pattern = pattern.to_string_lossy();
        let folder = path.parent().unwrap_or(Path::new(""));
        let mut names = files.list(folder).map_err(|error| unreadable(folder, error))?;
        names.retain(|name| Named::matches(&pattern, name));
        names.sort_unstable();
        if names.is_empty() {
            return Err(InputError::new(place, "describes no file")
                .hint("`*` stands for any letters and `?` for one, in the last part of the path"));
        }
        Ok(names.into_iter().map(|name| folder.join(name)).collect())
    }

    /// What `groups` name: in memory and unpacked, or as files.
    pub(super) fn sources(&self, groups: &Groups) -> Result<Vec<Vec<Source>>, InputError> {
        let source = |path: &PathBuf| match self.access {
            Access::Files(files) if self.is_streamed => {
                Ok(Source::File(FileSource::open(path, files, &self.open_count)?))
            }
            _ => self.whole(path),
        };
        groups.iter().map(|group| group.iter().map(source).collect()).collect()
    }

    /// A file in memory, unpacked.
    fn whole(&self, path: &Path) -> Result<Source, InputError> {
        let bytes = match self.access {
            Access::Whole(read) => read(path),
            Access::Files(files) => files.read(path),
        };
        let name = path.display().to_string();
        let bytes = bytes.map_err(|error| unreadable(path, error))?;
        Ok(Source::memory(&name, gzip::expand(&name, bytes)?))
    }

    /// All samples of these shards in memory.
    pub(super) fn table(&self, groups: &Groups, format: &mut dyn Format) -> Result<Table, InputError> {
        let mut all: Option<Table> = None;
        for group in groups {
            // One after the other: the bytes of a file need not stay when its samples are there.
            let sources = group.iter().map(|path| self.whole(path)).collect::<Result<Vec<_>, _>>()?;
            let name = sources[0].name().to_owned();
            let table = Table::read(format, sources)?;
            all = Some(match all {
                Some(before) => before.join(&name, table)?,
                None => table,
            });
        }
        all.ok_or_else(|| InputError::new("data.files", "no file is named"))
    }

    /// Samples that stay in their files, by what was found out before if it is still known.
    pub(super) fn streamed<'p>(
        &self,
        plan: impl Fn() -> Result<Plan<'p>, InputError>,
        format: &mut dyn Format,
    ) -> Result<Streamed, InputError> {
        let Access::Files(files) = self.access else { return Streamed::open(plan()?, format) };
        if let Some(kept) = files.kept(&self.name).and_then(|bytes| Kept::decode(&bytes))
            && let Some(set) = Streamed::restore(plan()?, format, kept)
        {
            return Ok(set);
        }
        let set = Streamed::open(plan()?, format)?;
        files.keep(&self.name, &set.kept().encode());
        Ok(set)
    }

    /// A digest that was found out before, or is found out now.
    pub(super) fn remembered(
        &self,
        digest: impl FnOnce() -> Result<String, InputError>,
    ) -> Result<String, InputError> {
        let Access::Files(files) = self.access else { return digest() };
        if !self.is_streamed {
            return digest();
        }
        if let Some(kept) = files.kept(&self.name).and_then(|bytes| Kept::decode(&bytes)) {
            return Ok(kept.digest);
        }
        let digest = digest()?;
        let kept = Kept {
            image: [1, 1, 1],
            is_float: false,
            classes: 0,
            digest: digest.clone(),
            scaling: None,
            shards: Vec::new(),
        };
        files.keep(&self.name, &kept.encode());
        Ok(digest)
    }
}

/// The files of each shard: one of each list, in the order of the lists.
pub(super) fn groups(reading: &Reading<'_>, lists: &[&Named]) -> Result<Groups, InputError> {
    let expanded = |list: &&Named| -> Result<Vec<PathBuf>, InputError> {
        Ok(list.paths().iter().map(|path| reading.expand(path)).collect::<Result<Vec<_>, _>>()?.concat())
    };
    let lists = lists.iter().map(expanded).collect::<Result<Vec<_>, _>>()?;
    let Some(first) = lists.first() else { return Ok(Vec::new()) };
    for list in &lists {
        if list.len() != first.len() {
            let what = format!("{} files of images are named, and {} of labels", first.len(), list.len());
            return Err(
                InputError::new("data.labels", what).hint("name one file of labels for each of images")
            );
        }
    }
    Ok((0..first.len()).map(|number| lists.iter().map(|list| list[number].clone()).collect()).collect())
}
