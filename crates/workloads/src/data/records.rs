//! Records in a tar archive, as WebDataset lays them out: members that follow each other and whose paths are equal up
//! to the first dot of their names are one sample. An image is a `.pgm` or `.ppm` (binary, up to 255), or a `.bin` of
//! bare bytes, plane by plane, whose shape the job names; `.cls` is its class, a number in digits. Other members are
//! passed over.

use bellwether_core::InputError;

use super::Batch;
use super::csv::{CLASSES_LIMIT, only};
use super::shard::{Each, Format, Marks, Opened, Shard, Values};
use super::source::Source;
use super::table::same_shape;
use super::tar::{Member, Members};

/// Largest image: a claim of more is damaged or meant badly.
const IMAGE_BYTES_MAX: u64 = 64 << 20;

/// Digits and white space of a class.
const CLASS_BYTES_MAX: u64 = 64;

/// Archives.
pub(super) struct Records {
    /// Of a `.bin`: channels, height and width.
    shape: Option<[usize; 3]>,
    /// Of every image, once one was seen.
    image: Option<[usize; 3]>,
}

impl Records {
    /// Reads archives whose bare bytes have this shape.
    pub(super) fn new(shape: Option<[usize; 3]>) -> Records {
        Records { shape, image: None }
    }
}

impl Format for Records {
    fn open(&mut self, sources: Vec<Source>, each: &mut Each<'_>) -> Result<Opened, InputError> {
        let source = only(sources);
        let (mut marks, mut most, mut sample) = (Marks::default(), 0, Sample::default());
        let mut groups = Groups::new(&source);
        while groups.advance()? {
            sample.read(&source, &groups.record, self.shape)?;
            let before = *self.image.get_or_insert(sample.image);
            same_shape(&format!("{} in {}", groups.record.key, source.name()), before, sample.image)?;
            marks.note(groups.record.begin);
            most = most.max(sample.class as usize);
            each(Values::Bytes(&sample.pixels), sample.class)?;
        }
        let Some(image) = self.image.filter(|_| marks.rows() > 0) else {
            return Err(InputError::new(source.name(), "holds no sample")
                .hint("each sample is an image (.pgm, .ppm or .bin) and its class (.cls)"));
        };
        marks.finish(groups.end);
        let shard = Box::new(Archive { source, shape: self.shape, marks });
        Ok(Opened { shard, image, is_float: false, classes: (most + 1).max(2) })
    }

    fn restore(&mut self, sources: Vec<Source>, numbers: &[u64]) -> Option<Box<dyn Shard>> {
        let source = only(sources);
        let marks = Marks::from_numbers(numbers, source.len())?;
        Some(Box::new(Archive { source, shape: self.shape, marks }))
    }
}

/// Members of one sample.
#[derive(Default)]
struct Record {
    key: String,
    /// Where the header of the first of them begins.
    begin: u64,
    members: Vec<Member>,
}

/// The records of an archive, one after the other.
struct Groups<'s> {
    members: Members<'s>,
    record: Record,
    /// The first member of the record that follows.
    next: Option<Member>,
    /// Where the record ends.
    end: u64,
    begun: bool,
}

impl<'s> Groups<'s> {
    fn new(source: &'s Source) -> Groups<'s> {
        Groups { members: Members::new(source), record: Record::default(), next: None, end: 0, begun: false }
    }

    /// Goes on to the next record; whether there is one.
    fn advance(&mut self) -> Result<bool, InputError> {
        if !std::mem::replace(&mut self.begun, true) {
            self.next = self.members.advance()?;
        }
        let Some(first) = self.next.take() else { return Ok(false) };
        self.record.key.clear();
        self.record.key.push_str(first.key());
        self.record.begin = first.begin;
        self.record.members.clear();
        self.end = first.end();
        self.record.members.push(first);
        while let Some(member) = self.members.advance()? {
            if member.key() != self.record.key {
                self.next = Some(member);
                break;
            }
            self.end = member.end();
            self.record.members.push(member);
            if self.record.members.len() > 1000 {
                let what = format!("more than 1000 members are called {}", self.record.key);
                return Err(InputError::new(self.members.name(), what));
            }
        }
        Ok(true)
    }
}

/// A decoded record.
#[derive(Default)]
struct Sample {
    image: [usize; 3],
    /// Plane by plane.
    pixels: Vec<u8>,
    class: u32,
}

impl Sample {
    fn read(
        &mut self,
        source: &Source,
        record: &Record,
        shape: Option<[usize; 3]>,
    ) -> Result<(), InputError> {
        let wrong = |what: &str| InputError::new(format!("{} in {}", record.key, source.name()), what);
        let find = |endings: &[&str]| {
            let mut found = record.members.iter().filter(|member| endings.contains(&member.ending()));
            (found.next(), found.next())
        };
        let image = match find(&["pgm", "ppm", "bin"]) {
            (Some(image), None) => image,
            (None, _) => {
                return Err(
                    wrong("has no image").hint("store it as .pgm, .ppm or .bin; packed images are not read")
                );
            }
            (Some(_), Some(_)) => return Err(wrong("has two images")),
        };
        let (Some(class), None) = find(&["cls"]) else {
            return Err(wrong("has no class, or two").hint("store it as .cls, a number in digits"));
        };
        let read = |member: &Member, most: u64| {
            if member.bytes > most {
                return Err(wrong(&format!("{} has more than {most} bytes", member.name)));
            }
            source.some_at(member.data, member.bytes as usize)
        };
        let text = read(class, CLASS_BYTES_MAX)?;
        let number = std::str::from_utf8(&text).ok().and_then(|text| text.trim().parse::<u32>().ok());
        self.class = number
            .filter(|class| *class < CLASSES_LIMIT)
            .ok_or_else(|| wrong(&format!("its class is not a number 0…{}", CLASSES_LIMIT - 1)))?;
        let bytes = read(image, IMAGE_BYTES_MAX)?;
        if image.ending() != "bin" {
            return self.portable(&bytes).ok_or_else(|| {
                wrong("its image cannot be read")
                    .hint("binary .pgm (P5) and .ppm (P6) with values up to 255 are read")
            });
        }
        self.image = shape.ok_or_else(|| {
            InputError::new("data.shape", "records hold .bin images, and no shape is named")
                .hint("write shape = [CHANNELS, HEIGHT, WIDTH]")
        })?;
        let expected: usize = self.image.iter().product();
        if bytes.len() != expected {
            return Err(wrong(&format!("has {} bytes, and data.shape asks for {expected}", bytes.len())));
        }
        self.pixels = bytes;
        Ok(())
    }

    /// Takes a portable grey map or pixel map in.
    fn portable(&mut self, bytes: &[u8]) -> Option<()> {
        let channels = match bytes.get(..2)? {
            b"P5" => 1,
            b"P6" => 3,
            _ => return None,
        };
        let mut rest = &bytes[2..];
        let mut number = || {
            while let Some((first, after)) = rest.split_first() {
                match first {
                    b'#' => rest = &rest[rest.iter().position(|byte| *byte == b'\n')?..],
                    first if first.is_ascii_whitespace() => rest = after,
                    _ => break,
                }
            }
            let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            let (digits, after) = rest.split_at(digits);
            rest = after;
            std::str::from_utf8(digits).ok()?.parse::<u32>().ok()
        };
        let [width, height, most] = [number()?, number()?, number()?].map(|size| size as usize);
        let pixels = rest.get(1..).filter(|_| rest[0].is_ascii_whitespace())?;
        let expected = width.checked_mul(height)?.checked_mul(channels)?;
        if most != 255 || expected == 0 || pixels.len() != expected {
            return None;
        }
        self.image = [channels, height, width];
        self.pixels.clear();
        // Colours of a pixel stand beside each other there, and in planes here.
        for channel in 0..channels {
            self.pixels.extend(pixels[channel..].iter().step_by(channels));
        }
        Some(())
    }
}

/// One archive, read by index.
struct Archive {
    source: Source,
    shape: Option<[usize; 3]>,
    marks: Marks,
}

impl Shard for Archive {
    fn rows(&self) -> u64 {
        self.marks.rows()
    }

    fn visit(&self, each: &mut Each<'_>) -> Result<(), InputError> {
        let (mut groups, mut sample) = (Groups::new(&self.source), Sample::default());
        while groups.advance()? {
            sample.read(&self.source, &groups.record, self.shape)?;
            each(Values::Bytes(&sample.pixels), sample.class)?;
        }
        Ok(())
    }

    fn append(&self, row: u64, batch: &mut Batch) -> Result<(), InputError> {
        let (before, begin, length) = self.marks.stretch(row);
        let stretch = Source::memory(self.source.name(), self.source.some_at(begin, length)?);
        let mut groups = Groups::new(&stretch);
        for _ in 0..=before {
            if !groups.advance()? {
                let what = "holds fewer samples than when it was opened";
                return Err(InputError::new(self.source.name(), what));
            }
        }
        let mut sample = Sample::default();
        sample.read(&stretch, &groups.record, self.shape)?;
        batch.values.extend(sample.pixels.iter().map(|byte| f32::from(*byte) / 255.0));
        batch.targets.push(sample.class);
        Ok(())
    }

    fn numbers(&self) -> Vec<u64> {
        self.marks.numbers()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::super::table::{Features, Table};
    use super::super::tar::tests::member;
    use super::*;

    /// An archive of `count` records: grey images of 2×3, named in this way.
    pub(in crate::data) fn archive(count: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        for number in 0..count {
            let pixels: Vec<u8> = (0..6).map(|place| (number * 7 + place) as u8).collect();
            bytes.extend(member(
                &format!("set/{number:04}.pgm"),
                &[b"P5\n# grey\n3 2\n255\n".to_vec(), pixels].concat(),
            ));
            bytes.extend(member(&format!("set/{number:04}.json"), b"{}"));
            bytes.extend(member(&format!("set/{number:04}.cls"), format!("{}\n", number % 3).as_bytes()));
        }
        bytes.extend([0; 1024]);
        bytes
    }

    fn read(bytes: Vec<u8>, shape: Option<[usize; 3]>) -> Result<Table, InputError> {
        Table::read(&mut Records::new(shape), vec![Source::memory("a.tar", bytes)])
    }

    fn message(members: &[(&str, &[u8])], shape: Option<[usize; 3]>) -> String {
        read(members.iter().flat_map(|(name, bytes)| member(name, bytes)).collect(), shape)
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn records_decode() {
        let table = read(archive(5), None).unwrap();
        assert_eq!((table.image, table.classes, &table.labels[..]), ([1, 2, 3], 3, &[0, 1, 2, 0, 1][..]));
        let Features::Bytes(pixels) = &table.features else { panic!("bytes") };
        assert_eq!(pixels[6..12], [7, 8, 9, 10, 11, 12]);
        let colours = [&b"P6 2 1 255\n"[..], &[1, 2, 3, 4, 5, 6]].concat();
        let table = read([member("a.ppm", &colours), member("a.cls", b"1")].concat(), None).unwrap();
        assert_eq!((table.image, table.features), ([3, 1, 2], Features::Bytes(vec![1, 4, 2, 5, 3, 6])));
        let bare = [member("a.bin", &[9; 6]), member("a.cls", b"1")].concat();
        assert_eq!(read(bare, Some([1, 2, 3])).unwrap().image, [1, 2, 3]);
    }

    #[test]
    fn faults_are_named() {
        let bare: (&str, &[u8]) = ("x/a.bin", &[9; 6]);
        assert!(message(&[bare, ("x/a.cls", b"1")], None).contains("data.shape"));
        assert!(message(&[bare, ("x/a.cls", b"1")], Some([1, 2, 2])).contains("asks for 4"));
        assert!(message(&[bare], Some([1, 2, 3])).starts_with("x/a in a.tar: has no class"));
        assert!(message(&[("x/a.jpg", b"?"), ("x/a.cls", b"1")], None).contains("has no image"));
        assert!(message(&[bare, ("x/a.cls", b"cat")], Some([1, 2, 3])).contains("not a number"));
        assert!(message(&[("a.pgm", b"P5 9 9 255\n1"), ("a.cls", b"1")], None).contains("cannot be read"));
        assert!(message(&[("a.pgm", b"P5 1 1 255"), ("a.cls", b"1")], None).contains("cannot be read"));
        assert!(read(vec![0; 1024], None).unwrap_err().to_string().contains("holds no sample"));
    }

    proptest! {
        #[test]
        fn mutated_archives_decode_or_are_refused(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4), cut in 0usize..9000,
        ) {
            let mut bytes = archive(3);
            for (place, value) in changes {
                let place = place.index(bytes.len());
                bytes[place] = value;
            }
            bytes.truncate(bytes.len().saturating_sub(cut));
            if let Ok(table) = read(bytes, None) {
                let Features::Bytes(pixels) = &table.features else { panic!("records hold bytes") };
                prop_assert_eq!(pixels.len(), table.labels.len() * table.image.iter().product::<usize>());
                prop_assert!(table.labels.iter().all(|label| (*label as usize) < table.classes));
            }
        }
    }
}
