//! Numbers between separators, one sample per line, and a class label in one of the columns.
//!
//! A label is a class number, or one of the names that the job file lists (`data.classes`). Fields may be quoted.

use std::collections::BTreeMap;

use bellwether_core::InputError;
use bellwether_core::job::Separator;
use csv::{ByteRecord, ReaderBuilder, Trim};

use super::table::{Features, Table};

/// Most classes that a label may name, so that a stray number cannot blow up the last layer.
pub(super) const CLASSES_LIMIT: u32 = 4096;

/// How a file is read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Form<'j> {
    /// Whether the first line names the columns.
    pub(super) header: bool,
    /// Factor on every feature.
    pub(super) scale: f32,
    /// What stands between two fields; without it the first line tells.
    pub(super) separator: Option<Separator>,
    /// The label's column, by its name or its number from 1; without it the last one.
    pub(super) label: Option<&'j str>,
    /// Names of the classes; empty where labels are numbers.
    pub(super) classes: &'j [String],
}

impl Form<'_> {
    /// Commas, no header, the label in the last column.
    pub(super) const PLAIN: Form<'static> =
        Form { header: false, scale: 1.0, separator: None, label: None, classes: &[] };
}

/// The lines of a file that hold something, each with its number.
pub(super) fn records<'b>(
    name: &'b str,
    bytes: &'b [u8],
    separator: Option<Separator>,
) -> impl Iterator<Item = Result<(usize, ByteRecord), InputError>> + use<'b> {
    let separator = separator.unwrap_or_else(|| recognise(bytes));
    let mut builder = ReaderBuilder::new();
    builder.has_headers(false).flexible(true).trim(Trim::All).delimiter(separator.byte());
    let records = builder.from_reader(bytes).into_byte_records();
    let records = records.map(move |record| {
        // Memory is read without faults, and a flexible reader takes lines of all lengths.
        let record = record.map_err(|error| InputError::new(name, error.to_string()))?;
        let (line, begin) = record.position().map_or((1, 0), |p| (p.line() as usize, p.byte() as usize));
        // The reader counts the empty lines before a record as part of it.
        let skipped = bytes.get(begin..).unwrap_or_default().iter();
        let skipped = skipped.take_while(|byte| matches!(byte, b'\n' | b'\r'));
        Ok((line + skipped.filter(|byte| **byte == b'\n').count(), record))
    });
    let is_blank = |record: &ByteRecord| record.len() == 1 && record[0].is_empty();
    records.filter(move |record| !record.as_ref().is_ok_and(|(_, record)| is_blank(record)))
}

/// The separator of a file: the one that its first line holds most often. A comma may be that of a decimal, so it comes
/// last among equals.
pub(super) fn recognise(bytes: &[u8]) -> Separator {
    let line = bytes.split(|byte| *byte == b'\n').find(|line| !line.trim_ascii().is_empty());
    let count = |separator: &Separator| {
        let byte = separator.byte();
        line.unwrap_or_default().iter().filter(|found| **found == byte).count()
    };
    let most = Separator::ALL.into_iter().rev().max_by_key(count);
    most.filter(|separator| count(separator) > 0).unwrap_or(Separator::Comma)
}

/// Decodes a whole file.
pub(super) fn decode(name: &str, bytes: &[u8], form: &Form<'_>) -> Result<Table, InputError> {
    let mut samples: Option<Samples<'_>> = None;
    let one_column = || {
        let separator = form.separator.unwrap_or_else(|| recognise(bytes)).name();
        InputError::new(name, "has one column; features and a label are needed")
            .hint(format!("columns are split at each {separator:?}; set data.separator to another"))
    };
    for (number, record) in records(name, bytes, form.separator).enumerate() {
        let (line, record) = record?;
        let is_header = form.header && number == 0;
        let samples = match &mut samples {
            Some(samples) => samples,
            None if record.len() < 2 => return Err(one_column()),
            None => samples.insert(Samples::new(&record, form)?),
        };
        if !is_header {
            samples.add(&record, &|column| format!("{name}:{line}:{column}"))?;
        }
    }
    let Some((samples, most)) = samples.and_then(|s| s.labels.iter().max().copied().map(|most| (s, most)))
    else {
        return Err(InputError::new(name, "holds no sample"));
    };
    let features = samples.columns - 1;
    let classes = (most as usize + 1).max(form.classes.len()).max(2);
    Ok(Table {
        features: Features::Floats(samples.floats),
        labels: samples.labels,
        image: [1, 1, features],
        classes,
    })
}

/// What was read so far.
struct Samples<'j> {
    form: &'j Form<'j>,
    /// Columns of every line.
    columns: usize,
    /// Place of the label among them, from 0.
    label: usize,
    /// The number of each named class.
    numbers: BTreeMap<&'j [u8], u32>,
    floats: Vec<f32>,
    labels: Vec<u32>,
    is_first: bool,
}

impl<'j> Samples<'j> {
    /// With as many columns as the first line has.
    fn new(first: &ByteRecord, form: &'j Form<'j>) -> Result<Samples<'j>, InputError> {
        let names = form.classes.iter().map(|name| name.as_bytes());
        Ok(Samples {
            form,
            columns: first.len(),
            label: label_place(first, form)?,
            numbers: names.zip(0..).collect(),
            floats: Vec::new(),
            labels: Vec::new(),
            is_first: !form.header,
        })
    }

    /// Adds a line; `at` names the place of a column.
    fn add(&mut self, record: &ByteRecord, at: &dyn Fn(usize) -> String) -> Result<(), InputError> {
        if record.len() != self.columns {
            let what = format!("has {} columns, the lines before it {}", record.len(), self.columns);
            return Err(InputError::new(at(record.len().min(self.columns)), what));
        }
        for (place, field) in record.iter().enumerate() {
            let text = std::str::from_utf8(field)
                .map_err(|_| InputError::new(at(place + 1), "is not UTF-8 text"))?;
            if place == self.label {
                let label = if self.form.classes.is_empty() { number(text) } else { self.named(text) };
                self.labels
                    .push(label.map_err(|(what, hint)| InputError::new(at(place + 1), what).hint(hint))?);
            } else {
                let value = feature(text, self.form.scale).map_err(|what| {
                    let hint = if self.is_first {
                        "set data.header = true if the first line names the columns"
                    } else if text.contains(',') {
                        "write numbers with a decimal point"
                    } else {
                        ""
                    };
                    InputError::new(at(place + 1), what).hint(hint)
                })?;
                self.floats.push(value);
            }
        }
        self.is_first = false;
        Ok(())
    }

    /// The class of a name.
    fn named(&self, text: &str) -> Result<u32, (String, &'static str)> {
        self.numbers.get(text.as_bytes()).copied().ok_or_else(|| {
            ("is not one of data.classes".into(), "add the name to data.classes; the case of letters counts")
        })
    }
}

/// The place of the label's column, from 0.
pub(super) fn label_place(first: &ByteRecord, form: &Form<'_>) -> Result<usize, InputError> {
    let Some(label) = form.label else { return Ok(first.len().saturating_sub(1)) };
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

    use super::*;

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
        let form = Form { header: true, label: Some("species"), classes: &classes, ..Form::PLAIN };
        let table = decode("f.csv", text, &form).unwrap();
        assert_eq!(table.features, Features::Floats(vec![1.0, 2.0, 3.0, 4.0]));
        assert_eq!((table.labels, table.classes), (vec![1, 0], 3));
        let by_number = Form { label: Some("1"), ..form };
        assert_eq!(decode("f.csv", text, &by_number).unwrap().classes, 3);
        let wrong = |form: Form<'_>| decode("f.csv", text, &form).unwrap_err().to_string();
        assert!(
            wrong(Form { label: Some("kind"), ..form })
                .starts_with("data.label: the first line names no column")
        );
        assert!(
            wrong(Form { classes: &classes[..1], ..form })
                .starts_with("f.csv:2:1: is not one of data.classes")
        );
        let hint = wrong(Form { classes: &[], ..form });
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
