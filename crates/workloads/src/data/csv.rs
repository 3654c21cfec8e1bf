//! Numbers separated by commas, one sample per line, the class label in the last column.
//! No quoting: a field is a number.

use bellwether_core::InputError;

use super::table::{Features, Table};

/// Most classes that a label may name, so that a stray number cannot blow up the last layer.
const CLASSES_LIMIT: u32 = 4096;

/// Decodes a whole file; `header` skips its first line, `scale` multiplies every feature.
pub(super) fn decode(name: &str, bytes: &[u8], header: bool, scale: f32) -> Result<Table, InputError> {
    let (mut floats, mut labels) = (Vec::new(), Vec::new());
    let mut columns = None;
    for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let number = index + 1;
        let at = |column: usize| format!("{name}:{number}:{column}");
        let line = std::str::from_utf8(line).map_err(|_| InputError::new(at(1), "is not UTF-8 text"))?.trim();
        if line.is_empty() || (header && index == 0) {
            continue;
        }
        let found = line.split(',').count();
        let expected = *columns.get_or_insert(found);
        if found != expected {
            return Err(InputError::new(
                at(found.min(expected)),
                format!("has {found} columns, the lines before it {expected}"),
            ));
        }
        for (place, field) in line.split(',').enumerate() {
            let (column, field) = (place + 1, field.trim());
            if column == expected {
                labels.push(label(field).map_err(|what| InputError::new(at(column), what))?);
            } else {
                let value = feature(field, scale).map_err(|what| {
                    let hint = if number == 1 {
                        "set data.header = true if the first line names the columns"
                    } else {
                        ""
                    };
                    InputError::new(at(column), what).hint(hint)
                })?;
                floats.push(value);
            }
        }
    }
    let features = columns.unwrap_or(1) - 1;
    let Some(most) = labels.iter().max() else {
        return Err(InputError::new(name, "holds no sample"));
    };
    if features == 0 {
        return Err(InputError::new(name, "has one column; features and a label are needed"));
    }
    let classes = (*most as usize + 1).max(2);
    Ok(Table { features: Features::Floats(floats), labels, image: [1, 1, features], classes })
}

fn feature(field: &str, scale: f32) -> Result<f32, String> {
    match field.parse::<f32>().map(|value| value * scale) {
        Ok(value) if value.is_finite() => Ok(value),
        Ok(_) => Err("is not finite when scaled".into()),
        Err(_) => Err("is not a number".into()),
    }
}

fn label(field: &str) -> Result<u32, String> {
    // `3.0` is accepted, because spreadsheets write it.
    let digits = field.strip_suffix(".0").unwrap_or(field);
    match digits.parse::<u32>() {
        Ok(class) if class < CLASSES_LIMIT => Ok(class),
        _ => Err(format!("is not a class label 0…{}", CLASSES_LIMIT - 1)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message(text: &str) -> String {
        decode("f.csv", text.as_bytes(), false, 1.0).unwrap_err().to_string()
    }

    #[test]
    fn a_valid_file_decodes() {
        let table = decode("f.csv", b"a,b,class\r\n1,2.5,0\r\n\n-3e0, 4 ,2.0", true, 0.5).unwrap();
        assert_eq!(table.features, Features::Floats(vec![0.5, 1.25, -1.5, 2.0]));
        assert_eq!((table.labels, table.classes, table.image), (vec![0, 2], 3, [1, 1, 2]));
    }

    #[test]
    fn faults_name_line_and_column() {
        assert!(message("1,2,0\n1,x,0").starts_with("f.csv:2:2: is not a number"));
        assert!(message("a,b,c\n1,2,0").contains("data.header"));
        assert!(message("1,2,0\n1,2").starts_with("f.csv:2:2: has 2 columns"));
        assert!(message("1,2,0\n1,2,0.5").starts_with("f.csv:2:3: is not a class label"));
        assert!(message("1,2,4096").contains("class label 0…4095"));
        assert!(message("1,1e39,0").contains("not finite"));
        assert!(message("").contains("no sample"));
        assert!(message("1\n0").contains("one column"));
        assert!(decode("f.csv", &[0xff, 0xfe], false, 1.0).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), header in any::<bool>()) {
            let _ = decode("fuzz", &bytes, header, 1.0);
        }

        #[test]
        fn near_valid_text_decodes_or_is_refused(text in "[0-9,.\n\re-]{0,80}", header in any::<bool>()) {
            if let Ok(table) = decode("fuzz", text.as_bytes(), header, 2.0) {
                let Features::Floats(floats) = &table.features else { panic!("CSV holds floats") };
                prop_assert_eq!(floats.len(), table.labels.len() * table.image[2]);
                prop_assert!(floats.iter().all(|value| value.is_finite()));
                prop_assert!(table.labels.iter().all(|label| (*label as usize) < table.classes));
            }
        }
    }
}
