//! Tables that users write: CSV with a header, whose columns are known.

use bellwether_core::{InputError, ParseError};

/// A table whose lines are not read yet.
pub(crate) struct Table<'a> {
    place: &'a str,
    columns: Vec<&'a str>,
    lines: Vec<Cells<'a>>,
}

/// The cells of a row.
#[derive(Clone)]
pub(crate) struct Cells<'a> {
    place: String,
    columns: Vec<&'a str>,
    cells: Vec<&'a str>,
}

impl<'a> Table<'a> {
    /// The rows of `text` that are neither empty nor begin with `#`; `place` names it in errors, and `needs` says what
    /// its first line must hold.
    pub(crate) fn read(
        text: &'a str,
        place: &'a str,
        known: &[&str],
        needs: &str,
    ) -> Result<Table<'a>, InputError> {
        let mut lines = text
            .lines()
            .enumerate()
            .map(|(number, line)| (number + 1, line.trim()))
            .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let (_, head) =
            lines.next().ok_or_else(|| InputError::new(place, "the table is empty").hint(needs))?;
        let columns: Vec<&str> = head.split(',').map(str::trim).collect();
        for (at, column) in columns.iter().enumerate() {
            if !known.contains(column) {
                return Err(ParseError::one_of("column", column, known.iter().copied()).at(place));
            }
            if columns[..at].contains(column) {
                return Err(InputError::new(place, format!("two columns are called `{column}`")));
            }
        }
        let cells = |(number, line): (usize, &'a str)| {
            let place = format!("{place}, line {number}");
            let cells: Vec<&str> = line.split(',').map(str::trim).collect();
            if cells.len() != columns.len() {
                let what = format!("it has {} cells, and there are {} columns", cells.len(), columns.len());
                return Err(InputError::new(place, what));
            }
            Ok(Cells { place, columns: columns.clone(), cells })
        };
        let lines = lines.map(cells).collect::<Result<Vec<Cells<'a>>, InputError>>()?;
        if lines.is_empty() {
            return Err(
                InputError::new(place, "the table has no row").hint("a row is one measured configuration")
            );
        }
        Ok(Table { place, columns, lines })
    }

    /// Whether it has this column.
    pub(crate) fn has(&self, column: &str) -> bool {
        self.columns.contains(&column)
    }

    /// Refuses a table that lacks one of these columns.
    pub(crate) fn must_have(&self, columns: &[&str]) -> Result<(), InputError> {
        match columns.iter().find(|column| !self.has(column)) {
            Some(column) => Err(InputError::new(self.place, format!("it has no column `{column}`"))
                .hint(format!("it needs {}", columns.join(", ")))),
            None => Ok(()),
        }
    }

    /// Its rows.
    pub(crate) fn rows(&self) -> impl Iterator<Item = Cells<'a>> + '_ {
        self.lines.iter().cloned()
    }
}

impl Cells<'_> {
    /// Where the row stands, for messages.
    pub(crate) fn place(&self) -> &str {
        &self.place
    }

    /// The cell of a column, unless it is empty.
    pub(crate) fn text(&self, column: &str) -> Option<&str> {
        let at = self.columns.iter().position(|known| *known == column)?;
        Some(self.cells[at]).filter(|cell| !cell.is_empty())
    }

    /// That the row does not say this.
    pub(crate) fn missing(&self, column: &str) -> InputError {
        InputError::new(&self.place, format!("it does not say `{column}`"))
    }

    /// A whole number from 1 on.
    pub(crate) fn whole(&self, column: &str, most: u64) -> Result<Option<u64>, InputError> {
        let Some(text) = self.text(column) else { return Ok(None) };
        let number = match text.parse::<u64>() {
            Ok(number) if (1..=most).contains(&number) => Ok(number),
            Ok(_) => Err(ParseError::out_of_range(column, text, format!("a whole number from 1 to {most}"))),
            Err(_) => Err(ParseError::new(column, text, "a whole number")),
        };
        number.map(Some).map_err(|error| error.at(&self.place))
    }

    /// A number above 0.
    pub(crate) fn positive(&self, column: &str) -> Result<Option<f64>, InputError> {
        let Some(text) = self.text(column) else { return Ok(None) };
        let number = match text.parse::<f64>() {
            Ok(number) if number.is_finite() && number > 0.0 => Ok(number),
            Ok(_) => Err(ParseError::out_of_range(column, text, "a number above 0")),
            Err(_) => Err(ParseError::new(column, text, "a number")),
        };
        number.map(Some).map_err(|error| error.at(&self.place))
    }
}
