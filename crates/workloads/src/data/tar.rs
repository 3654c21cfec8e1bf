//! Tar archives (POSIX.1-2017 `pax`, "ustar Interchange Format"; long names of GNU tar): the members that are files.

use bellwether_core::InputError;

use super::source::Source;

const BLOCK_BYTES: u64 = 512;

/// Longest name: headers that only hold names are not believed a larger size.
const NAME_BYTES_MAX: u64 = 64 << 10;

/// A file of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Member {
    /// Its path in the archive.
    pub(super) name: String,
    /// Where its first header begins.
    pub(super) begin: u64,
    /// Where its content begins.
    pub(super) data: u64,
    /// Length of its content.
    pub(super) bytes: u64,
}

impl Member {
    /// Its path up to the first dot of its last part.
    pub(super) fn key(&self) -> &str {
        &self.name[..self.dot()]
    }

    /// What follows that dot.
    pub(super) fn ending(&self) -> &str {
        self.name[self.dot()..].strip_prefix('.').unwrap_or("")
    }

    /// Where its last block ends.
    pub(super) fn end(&self) -> u64 {
        self.data + self.bytes.div_ceil(BLOCK_BYTES) * BLOCK_BYTES
    }

    fn dot(&self) -> usize {
        let last = self.name.rfind('/').map_or(0, |slash| slash + 1);
        self.name[last..].find('.').map_or(self.name.len(), |dot| last + dot)
    }
}

/// The members of an archive, from front to end.
pub(super) struct Members<'s> {
    source: &'s Source,
    offset: u64,
}

/// What headers before a file's own say of it.
#[derive(Default)]
struct Said {
    begin: Option<u64>,
    name: Option<String>,
    bytes: Option<u64>,
}

impl<'s> Members<'s> {
    /// Those of this archive.
    pub(super) fn new(source: &'s Source) -> Members<'s> {
        Members { source, offset: 0 }
    }

    /// What errors call the archive.
    pub(super) fn name(&self) -> &str {
        self.source.name()
    }

    /// The next file.
    pub(super) fn advance(&mut self) -> Result<Option<Member>, InputError> {
        let mut said = Said::default();
        loop {
            let begin = self.offset;
            let header = self.source.some_at(begin, BLOCK_BYTES as usize)?;
            // An archive ends with blocks of zeros; one that ends without them was written in a hurry, and is whole.
            if header.iter().all(|byte| *byte == 0) && said.begin.is_none() {
                return Ok(None);
            }
            let Some(header) = header.first_chunk::<512>() else {
                return Err(self.wrong(begin, "ends early"));
            };
            if !is_header(header) {
                return Err(self.wrong(begin, "is not a header of a tar archive"));
            }
            let bytes =
                number(&header[124..136]).ok_or_else(|| self.wrong(begin, "has a size that is none"))?;
            let kind = header[156];
            let bytes = if matches!(kind, b'0' | 0) { said.bytes.unwrap_or(bytes) } else { bytes };
            let data = begin + BLOCK_BYTES;
            let after = bytes.checked_next_multiple_of(BLOCK_BYTES).and_then(|bytes| data.checked_add(bytes));
            // The last block of an archive may be cut.
            let Some(after) = after.filter(|_| self.source.len() - data >= bytes) else {
                return Err(self.wrong(begin, "claims more bytes than the archive has"));
            };
            self.offset = after;
            match kind {
                b'0' | 0 => {
                    let name = said.name.unwrap_or_else(|| name_of(header));
                    return Ok(Some(Member { name, begin: said.begin.unwrap_or(begin), data, bytes }));
                }
                b'x' | b'L' => {
                    if bytes > NAME_BYTES_MAX {
                        return Err(self.wrong(begin, "has a name that is too long"));
                    }
                    let text = self.source.some_at(data, bytes as usize)?;
                    said.begin.get_or_insert(begin);
                    match kind {
                        b'L' => said.name = Some(text_of(&text)),
                        _ => said
                            .take(&text)
                            .ok_or_else(|| self.wrong(begin, "has a damaged extended header"))?,
                    }
                }
                // A folder, a link, a header for all: none of them is a file.
                _ => said = Said::default(),
            }
        }
    }

    fn wrong(&self, offset: u64, what: &str) -> InputError {
        InputError::new(self.source.name(), format!("its member at byte {offset} {what}"))
            .hint("the archive is damaged, or it is packed: unpack a .tar.gz first")
    }
}

impl Said {
    /// Takes the records of an extended header in: a length in digits, a space, a key, `=`, a value and a newline.
    fn take(&mut self, mut text: &[u8]) -> Option<()> {
        while !text.is_empty() {
            let space = text.iter().position(|byte| *byte == b' ')?;
            let length: usize = std::str::from_utf8(&text[..space]).ok()?.parse().ok()?;
            let record = text.get(space + 1..length)?.strip_suffix(b"\n")?;
            let equals = record.iter().position(|byte| *byte == b'=')?;
            let (key, value) = (&record[..equals], &record[equals + 1..]);
            match key {
                b"path" => self.name = Some(text_of(value)),
                b"size" => self.bytes = Some(std::str::from_utf8(value).ok()?.parse().ok()?),
                _ => {}
            }
            text = &text[length..];
        }
        Some(())
    }
}

/// Whether the sum of a header is the one that it names.
fn is_header(header: &[u8; 512]) -> bool {
    let sum: u64 = header.iter().map(|byte| u64::from(*byte)).sum();
    let own: u64 = header[148..156].iter().map(|byte| u64::from(*byte)).sum();
    number(&header[148..156]) == Some(sum - own + 8 * u64::from(b' '))
}

/// A number in octal digits, or in bytes after a mark where it needs more (GNU tar).
fn number(field: &[u8]) -> Option<u64> {
    if field[0] == 0x80 {
        return field[1..]
            .iter()
            .try_fold(0u64, |number, byte| number.checked_mul(256).map(|number| number + u64::from(*byte)));
    }
    let text = std::str::from_utf8(field).ok()?.trim_matches([' ', '\0']);
    if text.is_empty() { Some(0) } else { u64::from_str_radix(text, 8).ok() }
}

/// The name in a header, with what stands before it.
fn name_of(header: &[u8; 512]) -> String {
    let name = text_of(&header[..100]);
    let prefix = text_of(&header[345..500]);
    // GNU tar has other things there.
    match &header[257..263] == b"ustar\0" && !prefix.is_empty() {
        true => format!("{prefix}/{name}"),
        false => name,
    }
}

/// A text up to its end or the first zero byte.
fn text_of(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    fn header(name: &str, kind: u8, bytes: usize) -> Vec<u8> {
        let mut header = vec![0; 512];
        header[..name.len()].copy_from_slice(name.as_bytes());
        header[124..135].copy_from_slice(format!("{bytes:011o}").as_bytes());
        header[156] = kind;
        header[257..263].copy_from_slice(b"ustar\0");
        header[148..156].fill(b' ');
        let sum: u64 = header.iter().map(|byte| u64::from(*byte)).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        header
    }

    fn block(name: &str, kind: u8, content: &[u8]) -> Vec<u8> {
        let mut bytes = header(name, kind, content.len());
        bytes.extend(content);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
        bytes
    }

    /// A file of an archive.
    pub(in crate::data) fn member(name: &str, content: &[u8]) -> Vec<u8> {
        block(name, b'0', content)
    }

    fn all(bytes: Vec<u8>) -> Result<Vec<Member>, InputError> {
        let source = Source::memory("a.tar", bytes);
        let mut members = Members::new(&source);
        std::iter::from_fn(|| members.advance().transpose()).collect()
    }

    #[test]
    fn files_are_found_between_folders_and_under_long_names() {
        let long = "long/".repeat(60) + "name.v1.bin";
        let path = format!("path={long}\n");
        let length = path.len() + 4;
        let bytes = [
            block("folder", b'5', b""),
            member("a/b.x.bin", b"12345"),
            block("pax", b'x', format!("{length} {path}").as_bytes()),
            member("short", b"6"),
            block("link", b'L', long.as_bytes()),
            member("short", b""),
            vec![0; 1024],
        ];
        let found = all(bytes.concat()).unwrap();
        assert_eq!(
            (found[0].key(), found[0].ending(), found[0].data, found[0].bytes),
            ("a/b", "x.bin", 1024, 5)
        );
        assert_eq!((found[1].name.as_str(), found[1].begin), (long.as_str(), 1536));
        assert_eq!((found[2].name.as_str(), found[2].ending()), (long.as_str(), "v1.bin"));
        assert_eq!(found.len(), 3);
    }

    #[test]
    fn claims_are_not_believed() {
        let huge = header("a", b'0', (1 << 33) - 1);
        assert!(all(huge).unwrap_err().what.contains("claims more bytes"));
        let mut bytes = member("a", b"x");
        bytes[0] = b'b';
        assert!(all(bytes).unwrap_err().what.contains("is not a header"));
        assert!(all(vec![1; 100]).unwrap_err().what.contains("ends early"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_members_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
            let _ = all(bytes);
        }

        #[test]
        fn headers_with_right_sums_are_members_or_refused(
            field in prop::collection::vec(any::<u8>(), 12), kind: u8, tail in prop::collection::vec(any::<u8>(), 0..900),
        ) {
            let mut bytes = header("a", kind, 0);
            bytes[124..136].copy_from_slice(&field);
            bytes[148..156].fill(b' ');
            let sum: u64 = bytes.iter().map(|byte| u64::from(*byte)).sum();
            bytes[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
            bytes.extend(tail);
            let length = bytes.len() as u64;
            for member in all(bytes).unwrap_or_default() {
                prop_assert!(member.data + member.bytes <= length);
            }
        }
    }
}
