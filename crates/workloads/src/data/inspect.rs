//! A first look at a file with comma-separated values, for those who write its job file.

use std::collections::{BTreeMap, BTreeSet};

use bellwether_core::InputError;
use bellwether_core::job::Separator;
use csv::ByteRecord;

use super::csv::{BUFFER_BYTES, CLASSES_LIMIT, Lines, recognise};
use super::gzip;
use super::source::Source;

/// Names of a label's column, best first.
const LABELS: [&str; 7] = ["label", "class", "target", "species", "category", "outcome", "diagnosis"];

/// Labels that are words beyond which a column is more likely a text than a class.
const NAMES_MAX: usize = 100;

/// Bytes of a name that may be a class.
const NAME_BYTES: usize = 60;

/// What a file holds.
#[derive(Debug, Clone, PartialEq)]
pub struct Inspected {
    /// What stands between two fields.
    pub separator: Separator,
    /// Whether the first line names the columns.
    pub header: bool,
    /// The label's column: its name, or its number from 1.
    pub label: String,
    /// Whether that is the last column.
    pub label_is_last: bool,
    /// Names of the classes, sorted; empty where labels are numbers.
    pub classes: Vec<String>,
    /// Lines with samples.
    pub samples: usize,
    /// Columns but for the label.
    pub features: usize,
    /// Least and largest value of all features.
    pub range: (f64, f64),
    /// What stands in the way of training on it, a sentence each.
    pub obstacles: Vec<String>,
}

/// One column.
#[derive(Default)]
struct Column {
    /// Values that are not numbers.
    words: usize,
    /// Line of the first of them.
    first_word: usize,
    /// Whether all values are whole numbers that a class may have.
    whole: bool,
    range: (f64, f64),
    /// Different values, as far as they may be classes.
    values: BTreeSet<String>,
}

/// Looks at a whole file, plain or gzip-compressed. `name` names it in errors.
///
/// # Errors
///
/// What cannot be read as lines of fields, has a single column, or holds no sample.
pub fn inspect(name: &str, bytes: Vec<u8>) -> Result<Inspected, InputError> {
    let source = Source::memory(name, gzip::expand(name, bytes)?);
    let separator = recognise(&source)?;
    let mut lines = Lines::new(&source, separator, BUFFER_BYTES);
    let lines = std::iter::from_fn(|| match lines.advance() {
        Ok(true) => Some(Ok((lines.line() as usize, lines.record().clone()))),
        Ok(false) => None,
        Err(error) => Some(Err(error)),
    });
    let mut lines = lines.peekable();
    let first = match lines.next() {
        Some(first) => first?,
        None => return Err(InputError::new(name, "holds no sample")),
    };
    let second = match lines.peek() {
        Some(Ok((_, second))) => Some(second),
        _ => None,
    };
    let header = names_columns(&first.1, second);
    let mut columns: Vec<Column> = first.1.iter().map(|_| Column::new()).collect();
    if columns.len() < 2 {
        return Err(InputError::new(name, "has one column; features and a label are needed")
            .hint("columns are split at commas, semicolons, tabs or bars"));
    }
    let mut samples = 0;
    let mut ragged = None;
    let own = (!header).then(|| Ok(first.clone()));
    for line in own.into_iter().chain(lines) {
        let (line, record) = line?;
        if record.len() != columns.len() {
            ragged = ragged.or(Some((line, record.len())));
        }
        samples += 1;
        record.iter().zip(&mut columns).for_each(|(field, column)| column.take(line, field));
    }
    let names: Vec<String> = match header {
        true => first.1.iter().map(|field| String::from_utf8_lossy(field).into_owned()).collect(),
        false => (1..=columns.len()).map(|number| number.to_string()).collect(),
    };
    let label = label(&columns, header.then_some(&names));
    let mut obstacles = obstacles(&columns, &names, label);
    if let Some((line, found)) = ragged {
        obstacles.push(format!("line {line} has {found} columns, and the first line {}", columns.len()));
    }
    let features =
        columns.iter().enumerate().filter(|(place, _)| *place != label).map(|(_, column)| column.range);
    let range =
        features.fold((f64::MAX, f64::MIN), |(low, high), range| (low.min(range.0), high.max(range.1)));
    let classes =
        if columns[label].whole { BTreeSet::new() } else { std::mem::take(&mut columns[label].values) };
    Ok(Inspected {
        separator,
        header,
        label: names[label].clone(),
        label_is_last: label + 1 == columns.len(),
        classes: classes.into_iter().collect(),
        samples,
        features: columns.len() - 1,
        range,
        obstacles,
    })
}

impl Column {
    fn new() -> Column {
        Column { whole: true, range: (f64::MAX, f64::MIN), ..Column::default() }
    }

    fn take(&mut self, line: usize, field: &[u8]) {
        let text = String::from_utf8_lossy(field);
        match text.parse::<f64>().ok().filter(|value| value.is_finite()) {
            Some(value) => self.range = (self.range.0.min(value), self.range.1.max(value)),
            None => {
                self.words += 1;
                self.first_word = if self.words == 1 { line } else { self.first_word };
            }
        }
        let whole = text.strip_suffix(".0").unwrap_or(&text).parse::<u32>();
        self.whole &= whole.is_ok_and(|class| class < CLASSES_LIMIT);
        if self.values.len() <= NAMES_MAX && text.len() <= NAME_BYTES {
            self.values.insert(text.into_owned());
        }
    }

    /// Whether its values can name classes.
    fn has_classes(&self) -> bool {
        let has_numbers = self.range.0 <= self.range.1;
        let are_names = self.words > 0 && !has_numbers && !self.values.contains("");
        self.whole || (are_names && (2..=NAMES_MAX).contains(&self.values.len()))
    }
}

/// Whether the first line names the columns: a field of it is a word where the second line has a number, or it has no
/// number at all.
fn names_columns(first: &ByteRecord, second: Option<&ByteRecord>) -> bool {
    let is_number = |field: &[u8]| std::str::from_utf8(field).is_ok_and(|text| text.parse::<f64>().is_ok());
    let Some(second) = second else { return false };
    first.iter().zip(second).any(|(above, below)| !is_number(above) && is_number(below))
        && first.iter().all(|field| !is_number(field))
}

/// The place of the label's column: one that is called so, else the last one if it can be, else the only one of words.
fn label(columns: &[Column], names: Option<&Vec<String>>) -> usize {
    let called = |wanted: &&str| names?.iter().position(|name| name.eq_ignore_ascii_case(wanted));
    if let Some(place) = LABELS.iter().find_map(called) {
        return place;
    }
    let last = columns.len() - 1;
    let of_words: Vec<usize> = (0..columns.len())
        .filter(|place| columns[*place].words > 0 && columns[*place].has_classes())
        .collect();
    match of_words[..] {
        [only] if !columns[last].has_classes() || columns[last].words == 0 => only,
        _ => last,
    }
}

fn obstacles(columns: &[Column], names: &[String], label: usize) -> Vec<String> {
    let mut obstacles = Vec::new();
    let mut of_words = BTreeMap::new();
    for (place, column) in columns.iter().enumerate().filter(|(place, _)| *place != label) {
        if column.words > 0 {
            of_words.insert(place, column);
        }
    }
    for (place, column) in of_words {
        let Column { words, first_word, .. } = column;
        obstacles.push(format!(
            "column `{}` holds {words} {} that {} not numbers, the first in line {first_word}: fill them, or remove the \
             column",
            names[place],
            if *words == 1 { "value" } else { "values" },
            if *words == 1 { "is" } else { "are" },
        ));
    }
    if !columns[label].has_classes() {
        obstacles.push(format!(
            "column `{}` holds no classes: labels are whole numbers 0…{}, or at most {NAMES_MAX} different words; \
             numbers to predict (regression) are not supported",
            names[label],
            CLASSES_LIMIT - 1
        ));
    }
    obstacles
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(text: &str) -> Inspected {
        inspect("f.csv", text.as_bytes().to_vec()).unwrap()
    }

    #[test]
    fn a_file_with_words_for_labels_is_understood() {
        let iris = look("sepal,petal,species\n5.1,1.4,setosa\n6.2,4.5,virginica\n4.9,1.5,setosa\n");
        assert_eq!((iris.header, iris.label.as_str(), iris.label_is_last), (true, "species", true));
        assert_eq!(
            (iris.classes, iris.samples, iris.features),
            (vec!["setosa".into(), "virginica".into()], 3, 2)
        );
        assert_eq!((iris.range, iris.obstacles), ((1.4, 6.2), Vec::<String>::new()));
    }

    #[test]
    fn separators_headers_and_label_columns_are_found() {
        let plain = look("1;2;0\n3;4;1\n");
        assert_eq!((plain.separator, plain.header, plain.label.as_str()), (Separator::Semicolon, false, "3"));
        assert_eq!((plain.classes.len(), plain.samples), (0, 2));
        let first = look("kind\ta\tb\nx\t1.5\t2.5\ny\t3\t4.25\n");
        assert_eq!((first.label.as_str(), first.label_is_last), ("kind", false));
        let named = look("class,a,b\n1,2,3\n0,2,4\n");
        assert_eq!((named.label.as_str(), named.header), ("class", true));
    }

    #[test]
    fn what_cannot_be_trained_on_is_said() {
        let text = look("a,b,price\n1,x,2.5\n2,,3.5\n").obstacles.join("\n");
        assert!(
            text.contains("column `b` holds 2 values that are not numbers, the first in line 2"),
            "{text}"
        );
        assert!(text.contains("regression"), "{text}");
        assert!(inspect("f.csv", b"1\n2\n".to_vec()).is_err());
        assert!(inspect("f.csv", Vec::new()).is_err());
    }
}
