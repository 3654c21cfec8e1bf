//! Rows for spreadsheets.

use std::fmt::Display;

use csv::{Terminator, Writer, WriterBuilder};

/// CSV in memory: a head, then rows.
#[derive(Debug)]
pub struct Csv(Writer<Vec<u8>>);

impl Csv {
    /// Begins with a head: the names of the columns.
    pub fn new<Name: AsRef<str>>(head: impl IntoIterator<Item = Name>) -> Csv {
        let mut builder = WriterBuilder::new();
        let writer = builder.terminator(Terminator::Any(b'\n')).flexible(true);
        let mut csv = Csv(writer.from_writer(Vec::new()));
        csv.write(head);
        csv
    }

    /// Adds a row of cells, each as it prints.
    pub fn row(&mut self, cells: &[&dyn Display]) {
        self.write(cells.iter().map(ToString::to_string));
    }

    /// Adds a row of texts.
    pub fn write<Cell: AsRef<str>>(&mut self, cells: impl IntoIterator<Item = Cell>) {
        for cell in cells {
            // Memory takes whatever is written.
            let _ = self.0.write_field(cell.as_ref());
        }
        let _ = self.0.write_record(None::<&[u8]>);
    }

    /// The whole text, without the end of its last line.
    pub fn text(self) -> String {
        let bytes = self.0.into_inner().unwrap_or_default();
        String::from_utf8(bytes).unwrap_or_default().trim_end_matches('\n').to_owned()
    }
}

/// A cell of what may be unknown: empty then.
pub fn cell(value: Option<impl Display>) -> String {
    value.map_or(String::new(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_where_they_must_be() {
        let mut csv = Csv::new(["name", "value"]);
        csv.row(&[&"plain", &1.0]);
        csv.row(&[&"a,b", &cell(None::<f64>)]);
        csv.row(&[&"says \"no\"", &cell(Some(0.5))]);
        assert_eq!(csv.text(), "name,value\nplain,1\n\"a,b\",\n\"says \"\"no\"\"\",0.5");
    }
}
