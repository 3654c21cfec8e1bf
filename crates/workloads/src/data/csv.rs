//! Numbers between separators, one sample per line, and a class label in one of the columns.
//!
//! A label is a class number, or one of the names that the job file lists (`data.classes`). Fields may be quoted.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::rc::Rc;
use std::sync::Arc;

use bellwether_core::InputError;
use bellwether_core::job::Separator;
use csv::{ByteRecord, Reader, ReaderBuilder, Trim};

use super::Batch;
use super::shard::{Each, Format, Marks, Opened, Shard, Values};
use super::source::{Source, SourceReader};

/// Most classes that a label may name, so that a stray number cannot blow up the last layer.
pub(super) const CLASSES_LIMIT: u32 = 4096;

/// Longest line: a quotation mark that is never closed would make one line of the rest of a file.
const LINE_BYTES_MAX: u64 = 64 << 20;

/// Bytes at the begin of a file among which its first line is looked for, to recognise its separator.
const FIRST_LINE_BYTES: usize = 1 << 20;

/// How a file is read.
#[derive(Debug, Clone)]
pub(super) struct Form {
    /// Whether the first line names the columns.
    pub(super) header: bool,
    /// Factor on every feature.
    pub(super) scale: f32,
    /// What stands between two fields; without it the first line tells.
    pub(super) separator: Option<Separator>,
    /// The label's column, by its name or its number from 1; without it the last one.
    pub(super) label: Option<String>,
    /// Names of the classes; empty where labels are numbers.
    pub(super) classes: Vec<String>,
}

impl Form {
    /// Commas, no header, the label in the last column.
    pub(super) const PLAIN: Form =
        Form { header: false, scale: 1.0, separator: None, label: None, classes: Vec::new() };
}

/// A reader that the lines share with the parser of their fields.
struct Shared<'s>(Rc<RefCell<SourceReader<'s>>>);

impl Read for Shared<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.0.borrow_mut().read(out)
    }
}

/// The lines of a file that hold something, from an offset at which one begins.
pub(super) struct Lines<'s> {
    source: &'s Source,
    bytes: Rc<RefCell<SourceReader<'s>>>,
    reader: Reader<Shared<'s>>,
    record: ByteRecord,
    begin: u64,
}

impl<'s> Lines<'s> {
    /// - `buffer_bytes`: how much is read at once.
    pub(super) fn new(source: &'s Source, separator: Separator, buffer_bytes: usize) -> Lines<'s> {
        let bytes = Rc::new(RefCell::new(source.reader(0)));
        let mut builder = ReaderBuilder::new();
        builder.has_headers(false).flexible(true).trim(Trim::All).delimiter(separator.byte());
        let reader = builder.buffer_capacity(buffer_bytes).from_reader(Shared(Rc::clone(&bytes)));
        Lines { source, bytes, reader, record: ByteRecord::new(), begin: 0 }
    }

    /// Goes on to the next line; whether there is one.
    pub(super) fn advance(&mut self) -> Result<bool, InputError> {
        loop {
            self.begin = self.reader.position().byte();
            self.bytes.borrow_mut().allow(self.begin + LINE_BYTES_MAX);
            match self.reader.read_byte_record(&mut self.record) {
                Ok(false) => return Ok(false),
                Ok(true) if self.record.len() == 1 && self.record[0].is_empty() => {}
                Ok(true) => return Ok(true),
                Err(error) => return Err(self.failed(error)),
            }
        }
    }

    /// The fields of this line.
    pub(super) fn record(&self) -> &ByteRecord {
        &self.record
    }

    /// Its number, from 1.
    pub(super) fn line(&self) -> u64 {
        let line = self.record.position().map_or(1, csv::Position::line);
        // The reader counts the empty lines before a record as part of it.
        let (mut skipped, mut offset) = (0, self.begin);
        loop {
            let bytes = self.source.some_at(offset, 64).unwrap_or_default();
            let empty = bytes.iter().take_while(|byte| matches!(byte, b'\n' | b'\r'));
            let (empty, newlines) =
                empty.fold((0, 0), |(all, newlines), byte| (all + 1, newlines + u64::from(*byte == b'\n')));
            skipped += newlines;
            offset += empty as u64;
            if empty < bytes.len() || bytes.is_empty() {
                break;
            }
        }
        line + skipped
    }

    fn failed(&self, error: csv::Error) -> InputError {
        let name = self.source.name();
        match error.into_kind() {
            csv::ErrorKind::Io(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                let what = format!("has a line of more than {} MiB", LINE_BYTES_MAX >> 20);
                InputError::new(format!("{name}:{}", self.reader.position().line()), what)
                    .hint("is it a text, and is every quotation mark closed?")
            }
            csv::ErrorKind::Io(error) => match error.downcast::<InputError>() {
                Ok(error) => error,
                Err(error) => InputError::new(name, format!("cannot be read: {error}")),
            },
            kind => InputError::new(name, format!("cannot be read: {kind:?}")),
        }
    }
}

/// The separator of a file: the one that its first line holds most often. A comma may be that of a decimal, so it comes
/// last among equals.
pub(super) fn recognise(source: &Source) -> Result<Separator, InputError> {
    let bytes = source.some_at(0, FIRST_LINE_BYTES)?;
    let line = bytes.split(|byte| *byte == b'\n').find(|line| !line.trim_ascii().is_empty());
    let count = |separator: &Separator| {
        let byte = separator.byte();
        line.unwrap_or_default().iter().filter(|found| **found == byte).count()
    };
    let most = Separator::ALL.into_iter().rev().max_by_key(count);
    Ok(most.filter(|separator| count(separator) > 0).unwrap_or(Separator::Comma))
}

/// Files of lines, all of one form: what the first one says of columns and separator holds for the others.
pub(super) struct Csv {
    form: Form,
    parser: Option<Arc<Parser>>,
}

impl Csv {
    /// Reads by this form.
    pub(super) fn new(form: Form) -> Csv {
        Csv { form, parser: None }
    }

    /// How the lines of `source` are read; `first` is the first of them.
    fn parser(&mut self, source: &Source, lines: &Lines<'_>, separator: Separator) -> Result<(), InputError> {
        let first = lines.record();
        match &self.parser {
            None if first.len() < 2 => {
                let separator = separator.name();
                return Err(InputError::new(
                    source.name(),
                    "has one column; features and a label are needed",
                )
                .hint(format!("columns are split at each {separator:?}; set data.separator to another")));
            }
            None => self.parser = Some(Arc::new(Parser::new(first, &self.form, separator)?)),
            Some(parser) if self.form.header && *first != parser.first => {
                return Err(InputError::new(source.name(), "names other columns than the files before it")
                    .hint("all files of a data set have the same first line"));
            }
            Some(_) => {}
        }
        Ok(())
    }
}

impl Format for Csv {
    fn open(&mut self, sources: Vec<Source>, each: &mut Each<'_>) -> Result<Opened, InputError> {
        let source = only(sources);
        let separator = match (self.form.separator, &self.parser) {
            (Some(separator), _) => separator,
            (None, Some(parser)) => parser.separator,
            (None, None) => recognise(&source)?,
        };
        let (mut marks, mut most, mut floats) = (Marks::default(), None, Vec::new());
        let mut lines = Lines::new(&source, separator, BUFFER_BYTES);
        let mut is_first = true;
        while lines.advance()? {
            if is_first {
                self.parser(&source, &lines, separator)?;
            }
            let is_header = std::mem::take(&mut is_first) && self.form.header;
            let parser = self.parser.as_ref().expect("the first line made it");
            if !is_header {
                floats.clear();
                let is_first = marks.rows() == 0 && !self.form.header;
                let record = lines.record();
                let class = parser
                    .parse(record.len(), record.iter(), &mut floats, is_first)
                    .map_err(|fault| fault.at(&format!("{}:{}", source.name(), lines.line())))?;
                marks.note(lines.begin);
                most = most.max(Some(class));
                each(Values::Floats(&floats), class)?;
            }
        }
        marks.finish(lines.reader.position().byte());
        drop(lines);
        let (Some(most), Some(parser)) = (most, &self.parser) else {
            return Err(InputError::new(source.name(), "holds no sample"));
        };
        let image = [1, 1, parser.columns - 1];
        let classes = (most as usize + 1).max(self.form.classes.len()).max(2);
        let shard = Box::new(CsvShard { source, parser: Arc::clone(parser), marks });
        Ok(Opened { shard, image, is_float: true, classes })
    }

    fn restore(&mut self, sources: Vec<Source>, numbers: &[u64]) -> Option<Box<dyn Shard>> {
        let source = only(sources);
        let marks = Marks::from_numbers(numbers, source.len())?;
        if self.parser.is_none() {
            let separator = self.form.separator.map_or_else(|| recognise(&source), Ok).ok()?;
            let mut lines = Lines::new(&source, separator, STRETCH_BUFFER_BYTES);
            if !lines.advance().ok()? {
                return None;
            }
            self.parser(&source, &lines, separator).ok()?;
        }
        Some(Box::new(CsvShard { source, parser: Arc::clone(self.parser.as_ref()?), marks }))
    }
}

/// Bytes of a file that are read at once from front to end.
pub(super) const BUFFER_BYTES: usize = 256 << 10;

/// The same where few lines are looked at.
const STRETCH_BUFFER_BYTES: usize = 8 << 10;

/// The source of a shard that is one file.
pub(super) fn only(sources: Vec<Source>) -> Source {
    let [source] = <[Source; 1]>::try_from(sources).unwrap_or_else(|_| panic!("a shard of one file"));
    source
}

/// A file of lines, read by index.
struct CsvShard {
    source: Source,
    parser: Arc<Parser>,
    marks: Marks,
}

impl Shard for CsvShard {
    fn rows(&self) -> u64 {
        self.marks.rows()
    }

    fn visit(&self, each: &mut Each<'_>) -> Result<(), InputError> {
        let mut lines = Lines::new(&self.source, self.parser.separator, BUFFER_BYTES);
        let (mut floats, mut is_header) = (Vec::new(), self.parser.header);
        while lines.advance()? {
            if !std::mem::take(&mut is_header) {
                floats.clear();
                let record = lines.record();
                let class = self.parser.parse(record.len(), record.iter(), &mut floats, false);
                let class = class.map_err(|fault| fault.at(self.source.name()))?;
                each(Values::Floats(&floats), class)?;
            }
        }
        Ok(())
    }

    fn append(&self, row: u64, batch: &mut Batch) -> Result<(), InputError> {
        let (before, begin, length) = self.marks.stretch(row);
        let (name, separator) = (self.source.name(), self.parser.separator.byte());
        let bytes = self.source.some_at(begin, length)?;
        if let Some(line) = plain_line(&bytes, before as usize, separator) {
            let count = 1 + line.iter().filter(|byte| **byte == separator).count();
            let fields = line.split(|byte| *byte == separator).map(<[u8]>::trim_ascii);
            let class = self.parser.parse(count, fields, &mut batch.values, false);
            batch.targets.push(class.map_err(|fault| fault.at(name))?);
            return Ok(());
        }
        let stretch = Source::memory(name, bytes);
        let mut lines = Lines::new(&stretch, self.parser.separator, STRETCH_BUFFER_BYTES);
        for _ in 0..=before {
            if !lines.advance()? {
                return Err(InputError::new(name, "holds fewer samples than when it was opened"));
            }
        }
        let record = lines.record();
        let class = self.parser.parse(record.len(), record.iter(), &mut batch.values, false);
        batch.targets.push(class.map_err(|fault| fault.at(name))?);
        Ok(())
    }

    fn numbers(&self) -> Vec<u64> {
        self.marks.numbers()
    }
}

/// The line after `before` others, where all of them are so plain that no reader is needed to tell them apart: without
/// quotation marks, white space that is rare, or a mark of the byte order.
fn plain_line(bytes: &[u8], before: usize, separator: u8) -> Option<&[u8]> {
    // Without an early end, so that the compiler looks at many bytes at a time.
    let is_odd = bytes.iter().fold(false, |odd, byte| odd | matches!(byte, b'"' | 0x0b | 0x0c | 0xef));
    if is_odd {
        return None;
    }
    let is_blank = |line: &[u8]| line.iter().all(|byte| matches!(byte, b' ' | b'\t') && *byte != separator);
    let ends = memchr::memchr2_iter(b'\n', b'\r', bytes).chain([bytes.len()]);
    let lines = ends.scan(0, |begin, end| Some(&bytes[std::mem::replace(begin, end + 1)..end]));
    lines.filter(|line| !is_blank(line)).nth(before)
}

/// What is wrong with a field.
struct Fault {
    /// Its column, from 1.
    column: usize,
    what: String,
    hint: &'static str,
}

impl Fault {
    /// The error where the line is at `place`.
    fn at(self, place: &str) -> InputError {
        InputError::new(format!("{place}:{}", self.column), self.what).hint(self.hint)
    }
}

/// How the fields of a line become a sample.
struct Parser {
    /// The fields of the first line.
    first: ByteRecord,
    header: bool,
    separator: Separator,
    scale: f32,
    /// Columns of every line.
    columns: usize,
    /// Place of the label among them, from 0.
    label: usize,
    /// The number of each named class.
    numbers: BTreeMap<Vec<u8>, u32>,
}

impl Parser {
    /// With as many columns as the first line has.
    fn new(first: &ByteRecord, form: &Form, separator: Separator) -> Result<Parser, InputError> {
        let names = form.classes.iter().map(|name| name.clone().into_bytes());
        Ok(Parser {
            first: first.clone(),
            header: form.header,
            separator,
            scale: form.scale,
            columns: first.len(),
            label: label_place(first, form)?,
            numbers: names.zip(0..).collect(),
        })
    }

    /// Appends the features of a line, and returns its class.
    ///
    /// - `count`: how many `fields` it has.
    /// - `is_first`: whether it is the first line of its file.
    fn parse<'r>(
        &self,
        count: usize,
        fields: impl Iterator<Item = &'r [u8]>,
        floats: &mut Vec<f32>,
        is_first: bool,
    ) -> Result<u32, Fault> {
        if count != self.columns {
            let what = format!("has {count} columns, the lines before it {}", self.columns);
            return Err(Fault { column: count.min(self.columns), what, hint: "" });
        }
        let mut class = 0;
        for (place, field) in fields.enumerate() {
            let fault = |(what, hint): (String, &'static str)| Fault { column: place + 1, what, hint };
            let text = std::str::from_utf8(field).map_err(|_| fault(("is not UTF-8 text".to_owned(), "")))?;
            if place == self.label {
                let label = if self.numbers.is_empty() { number(text) } else { self.named(text) };
                class = label.map_err(fault)?;
            } else {
                floats.push(feature(text, self.scale).map_err(|what| {
                    let hint = if is_first {
                        "set data.header = true if the first line names the columns"
                    } else if text.contains(',') {
                        "write numbers with a decimal point"
                    } else {
                        ""
                    };
                    fault((what, hint))
                })?);
            }
        }
        Ok(class)
    }

    /// The class of a name.
    fn named(&self, text: &str) -> Result<u32, (String, &'static str)> {
        self.numbers.get(text.as_bytes()).copied().ok_or_else(|| {
            ("is not one of data.classes".into(), "add the name to data.classes; the case of letters counts")
        })
    }
}

/// The place of the label's column, from 0.
pub(super) fn label_place(first: &ByteRecord, form: &Form) -> Result<usize, InputError> {
    let Some(label) = &form.label else { return Ok(first.len().saturating_sub(1)) };
    let by_name = first.iter().position(|field| form.header && field == label.as_bytes());
    let by_number = label.parse::<usize>().ok().filter(|number| (1..=first.len()).contains(number));
    by_name.or(by_number.map(|number| number - 1)).ok_or_else(|| {
        let columns = first.len();
        let what = match form.header {
            true => format!("the first line names no column `{label}`"),
            false => format!("`{label}` is not a column's number, 1 to {columns}"),
        };
        let hint = match form.header {
            true => format!("name a column as the first line does, or by its number, 1 to {columns}"),
            false => "set data.header = true to name a column as the first line does".into(),
        };
        InputError::new("data.label", what).hint(hint)
    })
}

pub(super) fn feature(field: &str, scale: f32) -> Result<f32, String> {
    match field.parse::<f32>().map(|value| value * scale) {
        Ok(value) if value.is_finite() => Ok(value),
        Ok(_) => Err("is not finite when scaled".into()),
        Err(_) => Err("is not a number".into()),
    }
}

/// The class of a label that is a number.
fn number(field: &str) -> Result<u32, (String, &'static str)> {
    // `3.0` is accepted, because spreadsheets write it.
    let digits = field.strip_suffix(".0").unwrap_or(field);
    match digits.parse::<u32>() {
        Ok(class) if class < CLASSES_LIMIT => Ok(class),
        _ => Err((
            format!("is not a class label 0…{}", CLASSES_LIMIT - 1),
            "list the names in data.classes if labels are words; `bellwether init --data FILE` does it",
        )),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::table::{Features, Table};
    use super::*;

    fn decode(name: &str, bytes: &[u8], form: &Form) -> Result<Table, InputError> {
        Table::read(&mut Csv::new(form.clone()), vec![Source::memory(name, bytes.to_vec())])
    }

    fn plain(text: &str, header: bool) -> Result<Table, InputError> {
        decode("f.csv", text.as_bytes(), &Form { header, ..Form::PLAIN })
    }

    fn message(text: &str) -> String {
        plain(text, false).unwrap_err().to_string()
    }

    #[test]
    fn a_valid_file_decodes() {
        let form = Form { header: true, scale: 0.5, ..Form::PLAIN };
        let table = decode("f.csv", b"a,b,class\r\n1,2.5,0\r\n\n-3e0, 4 ,2.0", &form).unwrap();
        assert_eq!(table.features, Features::Floats(vec![0.5, 1.25, -1.5, 2.0]));
        assert_eq!((table.labels, table.classes, table.image), (vec![0, 2], 3, [1, 1, 2]));
    }

    #[test]
    fn faults_name_line_and_column() {
        assert!(message("1,2,0\n1,x,0").starts_with("f.csv:2:2: is not a number"));
        assert!(message("1,2,0\n\n\r\n  \n1,x,0").starts_with("f.csv:5:2: is not a number"));
        assert!(message("a,b,c\n1,2,0").contains("data.header"));
        assert!(message("1,2,0\n1,2").starts_with("f.csv:2:2: has 2 columns"));
        assert!(message("1,2,0\n1,2,0.5").starts_with("f.csv:2:3: is not a class label"));
        assert!(message("1,2,4096").contains("class label 0…4095"));
        assert!(message("1,1e39,0").contains("not finite"));
        assert!(message("").contains("no sample"));
        assert!(message("1\n0").contains("one column"));
        assert!(decode("f.csv", &[0xff, 0xfe], &Form::PLAIN).is_err());
    }

    #[test]
    fn separators_are_recognised_or_said() {
        let floats = |text: &str| plain(text, false).unwrap().features;
        let expected = Features::Floats(vec![1.5, 2.0, 3.0, 4.0]);
        for text in ["1.5,2,0\n3,4,1", "1.5;2;0\n3;4;1", "1.5\t2\t0\n3\t4\t1", "1.5|2|0\n3|4|1"] {
            assert_eq!(floats(text), expected, "{text}");
        }
        assert_eq!(floats("\"1.5\",2,\"0\"\n3,4,1"), expected);
        let error = plain("1;2;0\n1,5;2,5;0", false).unwrap_err();
        assert_eq!((&*error.place, &*error.hint), ("f.csv:2:1", "write numbers with a decimal point"));
        let said = Form { separator: Some(Separator::Comma), ..Form::PLAIN };
        let error = decode("f.csv", b"1;2;0\n", &said).unwrap_err().to_string();
        assert!(error.contains("data.separator"), "{error}");
    }

    #[test]
    fn labels_are_words_of_any_column() {
        let classes = ["setosa".to_owned(), "virginica".to_owned(), "rare".to_owned()];
        let text = b"species,a,b\nvirginica,1,2\n\"setosa\",3,4\n";
        let form =
            Form { header: true, label: Some("species".into()), classes: classes.to_vec(), ..Form::PLAIN };
        let table = decode("f.csv", text, &form).unwrap();
        assert_eq!(table.features, Features::Floats(vec![1.0, 2.0, 3.0, 4.0]));
        assert_eq!((table.labels, table.classes), (vec![1, 0], 3));
        let by_number = Form { label: Some("1".into()), ..form.clone() };
        assert_eq!(decode("f.csv", text, &by_number).unwrap().classes, 3);
        let wrong = |form: Form| decode("f.csv", text, &form).unwrap_err().to_string();
        assert!(
            wrong(Form { label: Some("kind".into()), ..form.clone() })
                .starts_with("data.label: the first line names no column")
        );
        assert!(
            wrong(Form { classes: classes[..1].to_vec(), ..form.clone() })
                .starts_with("f.csv:2:1: is not one of data.classes")
        );
        let hint = wrong(Form { classes: Vec::new(), ..form });
        assert!(
            hint.contains("data.classes") && !hint.contains("virginica"),
            "no error quotes the file: {hint}"
        );
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), header in any::<bool>()) {
            let _ = decode("fuzz", &bytes, &Form { header, ..Form::PLAIN });
        }

        #[test]
        fn near_valid_text_decodes_or_is_refused(text in "[0-9,.;\"\n\re-]{0,80}", header in any::<bool>()) {
            if let Ok(table) = decode("fuzz", text.as_bytes(), &Form { header, scale: 2.0, ..Form::PLAIN }) {
                let Features::Floats(floats) = &table.features else { panic!("CSV holds floats") };
                prop_assert_eq!(floats.len(), table.labels.len() * table.image[2]);
                prop_assert!(floats.iter().all(|value| value.is_finite()));
                prop_assert!(table.labels.iter().all(|label| (*label as usize) < table.classes));
            }
        }
    }
}
