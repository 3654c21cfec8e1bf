//! Cuts a file, or what is still being written, into units of whole rows, without reading more than it needs.

use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;

use bellwether_core::InputError;
use bellwether_core::job::Separator;
use flate2::bufread::MultiGzDecoder;

use super::csv::{self, label_place, recognise};
use super::rows::{Form, Kind, Lines};
use super::source;
use super::unit::Rows;

/// Longest row in bytes: a file without line ends is not a table.
const ROW_BYTES_MAX: u64 = 16 << 20;

/// Bytes that are read at once.
const BUFFER_BYTES: usize = 1 << 18;

/// Bytes of a CIFAR-10 record: its label and three planes.
const CIFAR_BYTES: usize = 1 + 3 * 32 * 32;

/// Bytes of a file that may be compressed.
enum Source {
    Plain(BufReader<Box<dyn Read + Send>>),
    Packed(BufReader<MultiGzDecoder<BufReader<Box<dyn Read + Send>>>>),
}

impl Source {
    fn reader(&mut self) -> &mut dyn BufRead {
        match self {
            Source::Plain(reader) => reader,
            Source::Packed(reader) => reader,
        }
    }

    /// Whether a line can be read without waiting.
    fn has_line(&self) -> bool {
        let buffer = match self {
            Source::Plain(reader) => reader.buffer(),
            Source::Packed(reader) => reader.buffer(),
        };
        buffer.contains(&b'\n')
    }
}

/// Cuts a file into units of rows.
pub struct Cutter {
    form: Arc<Form>,
    name: String,
    source: Source,
    /// Rows of a unit.
    unit: usize,
    /// Whether a unit ends where the next row is not there yet.
    follows: bool,
    /// Rows and lines so far.
    rows: u64,
    lines: u64,
    /// What the first row says of all.
    shape: Option<(Separator, usize, Option<usize>)>,
    /// Images that an IDX file claims to have.
    claimed: Option<u64>,
    ended: bool,
}

impl Cutter {
    /// Cuts what `reader` gives, a file called `name`, into units of `unit` rows. With `follows` a unit ends early
    /// where the next row is not there yet, and files are not expanded.
    ///
    /// # Errors
    ///
    /// Returns an error if nothing can be read.
    pub fn new(
        form: Arc<Form>,
        name: &str,
        reader: Box<dyn Read + Send>,
        unit: usize,
        follows: bool,
    ) -> Result<Cutter, InputError> {
        let mut reader = BufReader::with_capacity(BUFFER_BYTES, reader);
        let fault = |error: std::io::Error| InputError::new(name, format!("cannot be read: {error}"));
        let is_packed = !follows && reader.fill_buf().map_err(fault)?.starts_with(&[0x1f, 0x8b]);
        let source = match is_packed {
            true => Source::Packed(BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(reader))),
            false => Source::Plain(reader),
        };
        Ok(Cutter {
            form,
            name: name.to_owned(),
            source,
            unit: unit.max(1),
            follows,
            rows: 0,
            lines: 0,
            shape: None,
            claimed: None,
            ended: false,
        })
    }

    fn fault(&self, error: &std::io::Error) -> InputError {
        InputError::new(&self.name, format!("cannot be read: {error}"))
    }

    /// Appends the bytes of the next record; whether it holds something, or nothing at the end.
    fn record(&mut self, bytes: &mut Vec<u8>) -> Result<Option<bool>, InputError> {
        let (begin, mut is_quoted) = (bytes.len(), false);
        loop {
            let from = bytes.len();
            let left = ROW_BYTES_MAX.saturating_sub((from - begin) as u64);
            if left == 0 {
                let what = format!("a row up to line {} has more than {ROW_BYTES_MAX} bytes", self.lines);
                return Err(
                    InputError::new(&self.name, what).hint("rows stand on lines; quotation marks are closed")
                );
            }
            let read = self.source.reader().take(left).read_until(b'\n', bytes);
            if read.map_err(|error| self.fault(&error))? == 0 {
                // The last line may have no end.
                return Ok((from > begin).then(|| !bytes[begin..].trim_ascii().is_empty()));
            }
            self.lines += 1;
            is_quoted ^= bytes[from..].iter().filter(|byte| **byte == b'"').count() % 2 == 1;
            if bytes.ends_with(b"\n") && !is_quoted {
                return Ok(Some(!bytes[begin..].trim_ascii().is_empty()));
            }
        }
    }

    /// The next unit of rows on lines.
    fn lines(&mut self, form: &Lines) -> Result<Option<Rows>, InputError> {
        let mut bytes = Vec::new();
        let (mut count, mut line) = (0, self.lines + 1);
        while count < self.unit {
            let from = bytes.len();
            let Some(is_row) = self.record(&mut bytes)? else { break };
            if !is_row {
                continue;
            }
            if self.shape.is_none() {
                if bytes.starts_with(&[0xef, 0xbb, 0xbf]) {
                    bytes.drain(..3);
                }
                let first = self.shaped(form, &bytes[from.min(bytes.len())..])?;
                self.shape = Some(first);
                if form.header {
                    bytes.clear();
                    line = self.lines + 1;
                    continue;
                }
            }
            count += 1;
            if self.follows && !self.source.has_line() {
                break;
            }
        }
        let Some((separator, columns, label)) = self.shape.filter(|_| count > 0) else { return Ok(None) };
        Ok(Some(Rows { first: self.rows, count, bytes, line, separator, columns, label }))
    }

    /// What the first line says of all: the separator, the number of columns, and which of them is a label.
    fn shaped(&self, form: &Lines, first: &[u8]) -> Result<(Separator, usize, Option<usize>), InputError> {
        let bytes = source::Source::memory(&self.name, first.to_vec());
        let separator = form.separator.map_or_else(|| recognise(&bytes), Ok)?;
        let mut lines = csv::Lines::new(&bytes, separator, BUFFER_BYTES);
        if !lines.advance()? {
            return Err(InputError::new(&self.name, "holds no row"));
        }
        let record = lines.record();
        let columns = record.len();
        let Some(width) = form.width.filter(|width| *width != columns) else {
            return Ok((separator, columns, None));
        };
        if columns != width + 1 {
            let what =
                format!("has {columns} columns; the model takes {width} values, or {width} and a label");
            let hint = format!("columns are split at each {:?}, as in the training data", separator.name());
            return Err(InputError::new(format!("{}:{}", self.name, self.lines), what).hint(hint));
        }
        let form = csv::Form { header: form.header, label: form.label.clone(), ..csv::Form::PLAIN };
        Ok((separator, columns, Some(label_place(record, &form)?)))
    }

    /// The next unit of rows of `width` bytes each.
    fn fixed(&mut self, width: usize) -> Result<Option<Rows>, InputError> {
        let left = self.claimed.map_or(u64::MAX, |claimed| claimed - self.rows);
        let wanted = (self.unit as u64).min(left) * width as u64;
        let mut bytes = Vec::new();
        let read = self.source.reader().take(wanted).read_to_end(&mut bytes);
        read.map_err(|error| self.fault(&error))?;
        let is_short =
            !bytes.len().is_multiple_of(width) || (self.claimed.is_some() && (bytes.len() as u64) < wanted);
        let is_text = matches!(self.form.kind, Kind::Text);
        if is_short && !is_text {
            let what = format!("ends within row {}", self.rows + (bytes.len() / width) as u64);
            return Err(
                InputError::new(&self.name, what).hint("the file is cut short or damaged; fetch it again")
            );
        }
        // The end of a text, which is less than a window.
        bytes.truncate(bytes.len() / width * width);
        let (count, separator) = (bytes.len() / width, Separator::Comma);
        let rows = Rows { first: self.rows, count, bytes, line: 1, separator, columns: 0, label: None };
        Ok((count > 0).then_some(rows))
    }

    /// Reads the header of an IDX3 file: how many images it has.
    fn idx_header(&mut self) -> Result<u64, InputError> {
        let mut header = [0; 16];
        let read = self.source.reader().read_exact(&mut header);
        let wrong = |what: String| InputError::new(&self.name, what);
        read.map_err(|error| wrong(format!("is not an IDX3 file of images: {error}")))?;
        if header[..4] != [0, 0, 8, 3] {
            return Err(wrong("is not an IDX3 file of images: it does not start with 00 00 08 03".into()));
        }
        let number =
            |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let ([_, height, width], found) = (self.form.image(), [number(8) as usize, number(12) as usize]);
        if found != [height, width] {
            let what =
                format!("holds images of {}×{}, and the model takes {height}×{width}", found[0], found[1]);
            return Err(wrong(what));
        }
        Ok(u64::from(number(4)))
    }

    /// The next unit, with at most this many rows, however they come.
    pub fn take_at_most(&mut self, rows: u64) -> Option<Result<Rows, InputError>> {
        let (unit, follows) = (self.unit, self.follows);
        self.unit = usize::try_from(rows).map_or(unit, |rows| rows.clamp(1, unit));
        self.follows = false;
        let taken = self.next();
        (self.unit, self.follows) = (unit, follows);
        taken
    }

    fn unit(&mut self) -> Result<Option<Rows>, InputError> {
        let form = Arc::clone(&self.form);
        let width: usize = form.image().iter().product();
        match &form.kind {
            Kind::Lines(lines) => self.lines(lines),
            Kind::Cifar => self.fixed(CIFAR_BYTES),
            Kind::Text => self.fixed(width),
            Kind::Idx => {
                if self.claimed.is_none() {
                    self.claimed = Some(self.idx_header()?);
                }
                self.fixed(width)
            }
        }
    }
}

impl Iterator for Cutter {
    type Item = Result<Rows, InputError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let unit = self.unit().transpose();
        match &unit {
            Some(Ok(rows)) => self.rows += rows.count as u64,
            _ => self.ended = true,
        }
        unit
    }
}

#[cfg(test)]
mod tests {
    use bellwether_core::job::Job;
    use proptest::prelude::*;

    use super::*;
    use crate::data::rows::Columns;

    fn job(data: &str, model: &str) -> Job {
        let text = format!(
            "name = \"job\"\nsteps = 1\n[batch]\nsize = 4\nvirtual_nodes = 2\n[model]\n{model}\n[data]\n{data}\n\
             [optimizer]\nkind = \"sgd\"\nlearning_rate = 0.1\n"
        );
        toml::from_str(&text).expect("a job")
    }

    fn form(data: &str, file: &[u8]) -> Arc<Form> {
        let job = job(data, "kind = \"mlp\"\nhidden = [4]");
        Arc::new(Form::of(&job, &|_| Ok(file.to_vec())).expect("a form"))
    }

    /// Three features that are normalised, and named classes in the second column.
    fn flowers() -> Arc<Form> {
        let data = "kind = \"csv\"\npath = \"f.csv\"\nheader = true\nlabel = \"kind\"\nclasses = [\"a\", \"b,c\"]\n\
                    normalise = \"standard\"\nheld_out = 0.25";
        form(data, b"x,kind,y,z\n1,a,2,3\n2,a,4,3\n3,\"b,c\",6,3\n4,a,8,3\n")
    }

    /// Values and counts of all units.
    fn cut(form: &Arc<Form>, bytes: &[u8], unit: usize) -> Result<(Vec<f32>, Vec<usize>), InputError> {
        let reader = Box::new(std::io::Cursor::new(bytes.to_vec()));
        let (mut values, mut counts) = (Vec::new(), Vec::new());
        for rows in Cutter::new(Arc::clone(form), "in", reader, unit, false)? {
            let rows = rows?;
            assert_eq!(rows.first as usize, counts.iter().sum::<usize>());
            form.decode("in", &rows, &mut values)?;
            counts.push(rows.count);
        }
        Ok((values, counts))
    }

    #[test]
    fn rows_are_what_training_made_of_them() {
        let form = flowers();
        let (labelled, counts) = cut(&form, b"x,kind,y,z\n3,\"b,c\",6,3\n\n1,?,2,3", 8).expect("two rows");
        assert_eq!(counts, [2]);
        let (bare, _) = cut(&form, b"\xef\xbb\xbfx,y,z\r\n3,6,3\r\n1,2,3\r\n", 1).expect("two rows");
        assert_eq!(labelled, bare);
        // A feature that is always the same is 0, and the other two differ by the same number of deviations.
        assert_eq!((labelled[2], labelled[5]), (0.0, 0.0));
        assert!((labelled[0] - labelled[3] - (labelled[1] - labelled[4])).abs() < 1e-6, "{labelled:?}");
    }

    #[test]
    fn what_is_predicted_has_names_and_shares() {
        let form = flowers();
        let reader = Box::new(&b"x,y,z\n1,2,3\n1,2,3\n"[..]);
        let rows = Cutter::new(Arc::clone(&form), "in", reader, 9, false).expect("it opens").next();
        let rows = rows.expect("a unit").expect("two rows");
        let columns = Columns { scores: true };
        let predicted = form.predicted(&rows, &[0.0, 0.0, -200.0, 0.0], columns).expect("they fit");
        assert_eq!(form.header(columns, predicted.outputs), "index,prediction,p_a,\"p_b,c\"\n");
        assert_eq!(String::from_utf8_lossy(&predicted.text), "0,a,0.5,0.5\n1,\"b,c\",0,1\n");
        let number = form.predicted(&rows, &[1.5, -0.1], Columns { scores: false }).expect("one output each");
        assert_eq!(String::from_utf8_lossy(&number.text), "0,1.5\n1,-0.1\n");
        assert!(form.predicted(&rows, &[1.0; 3], columns).is_err());
    }

    #[test]
    fn images_and_windows_have_a_fixed_size() {
        let (images, labels) = crate::data::idx::tests::files(20, 4, 3);
        let job = job("kind = \"idx\"\nimages = \"i\"\nlabels = \"l\"", "kind = \"mlp\"\nhidden = [4]");
        let open =
            |path: &std::path::Path| Ok(if path.ends_with("i") { images.clone() } else { labels.clone() });
        let form = Arc::new(Form::of(&job, &open).expect("a form"));
        let (values, counts) = cut(&form, &images, 8).expect("twenty images");
        assert_eq!((values.len(), counts), (240, vec![8, 8, 4]));
        let short = cut(&form, &images[..images.len() - 1], 8).expect_err("one byte is missing");
        assert!(short.what.contains("ends within row 19"), "{short}");
        assert!(cut(&form, &labels, 8).expect_err("they are not images").what.contains("not an IDX3 file"));
        let other = crate::data::idx::tests::files(20, 3, 4).0;
        assert!(cut(&form, &other, 8).expect_err("another shape").what.contains("images of 3×4"));
    }

    #[test]
    fn a_row_without_an_end_is_refused() {
        let long = vec![b'1'; ROW_BYTES_MAX as usize + 10];
        assert!(cut(&flowers(), &long, 8).expect_err("it is too long").what.contains("more than"));
    }

    #[test]
    fn packed_files_are_expanded() {
        let packed = crate::data::gzip::tests::compress(b"x,y,z\n1,2,3\n4,5,6\n");
        assert_eq!(cut(&flowers(), &packed, 8).expect("two rows").1, [2]);
        assert!(cut(&flowers(), &packed[..packed.len() - 9], 8).is_err());
    }

    proptest! {
        #[test]
        fn the_cut_changes_nothing(
            rows in prop::collection::vec((-1000i32..1000, -9f32..9.0, "[\n\r ]{0,2}"), 1..60), unit in 1usize..20,
        ) {
            let line = |(x, y, gap): &(i32, f32, String)| format!("{x},{y},\"7\"\n{}\n", gap.replace('\r', ""));
            let text: String = rows.iter().map(line).collect();
            let form = form("kind = \"csv\"\npath = \"f\"\n", b"1,2,3,0\n4,5,6,1\n7,8,9,1\n1,1,1,0\n1,2,1,0\n");
            let (values, counts) = cut(&form, text.as_bytes(), unit).expect("they are rows");
            let expected: Vec<f32> = rows.iter().flat_map(|(x, y, _)| [*x as f32, *y, 7.0]).collect();
            prop_assert_eq!(&values, &expected);
            prop_assert!(counts[..counts.len() - 1].iter().all(|count| *count == unit));
        }

        #[test]
        fn any_bytes_are_rows_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), unit in 1usize..5) {
            let _ = cut(&flowers(), &bytes, unit);
        }

        #[test]
        fn almost_tables_are_rows_or_refused(text in "[0-9,;\"\n\r. xe-]{0,120}", unit in 1usize..5) {
            if let Ok((values, counts)) = cut(&flowers(), text.as_bytes(), unit) {
                prop_assert_eq!(values.len(), 3 * counts.iter().sum::<usize>());
            }
        }
    }
}
