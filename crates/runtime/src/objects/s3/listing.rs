//! What a store answers: lists of objects, and errors. Untrusted bytes: whatever is not understood is nothing.

use quick_xml::Reader;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::Event;

use super::super::place::Object;

/// A part of a list.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Page {
    /// Objects by their whole keys.
    pub(super) objects: Vec<Object>,
    /// Common prefixes.
    pub(super) folders: Vec<String>,
    /// Asks for the rest.
    pub(super) next: Option<String>,
}

/// Calls `each` with the names of all open elements and the text within, wherever an element ends.
fn walk(bytes: &[u8], mut each: impl FnMut(&[String], &str)) -> Option<()> {
    let mut reader = Reader::from_str(std::str::from_utf8(bytes).ok()?);
    let (mut open, mut text): (Vec<String>, String) = (Vec::new(), String::new());
    loop {
        match reader.read_event().ok()? {
            Event::Start(start) => {
                open.push(start.local_name().as_ref().to_owned());
                text.clear();
            }
            Event::Text(part) => text.push_str(&part),
            Event::GeneralRef(reference) => match reference.resolve_char_ref() {
                Ok(Some(character)) => text.push(character),
                _ => text.push_str(resolve_predefined_entity(&reference)?),
            },
            Event::End(_) => {
                each(&open, &text);
                open.pop()?;
                text.clear();
            }
            Event::Eof => return open.is_empty().then_some(()),
            _ => {}
        }
    }
}

/// Reads the answer to a request for a list; nothing if it is none.
pub(super) fn page(bytes: &[u8]) -> Option<Page> {
    let (mut page, mut is_list, mut is_cut) = (Page::default(), false, false);
    let (mut key, mut size) = (None, None);
    walk(bytes, |open, text| {
        let open: Vec<&str> = open.iter().map(String::as_str).collect();
        match open.as_slice() {
            ["ListBucketResult"] => is_list = true,
            ["ListBucketResult", "IsTruncated"] => is_cut = text == "true",
            ["ListBucketResult", "NextContinuationToken"] => page.next = Some(text.into()),
            ["ListBucketResult", "CommonPrefixes", "Prefix"] => page.folders.push(text.into()),
            ["ListBucketResult", "Contents", "Key"] => key = Some(text.to_string()),
            ["ListBucketResult", "Contents", "Size"] => size = text.parse().ok(),
            ["ListBucketResult", "Contents"] => {
                if let (Some(key), Some(bytes)) = (key.take(), size.take()) {
                    page.objects.push(Object { key, bytes });
                }
            }
            _ => {}
        }
    })?;
    if !is_cut {
        page.next = None;
    }
    (is_list && (!is_cut || page.next.is_some())).then_some(page)
}

/// The store's word for an error, such as `NoSuchBucket`. Its longer message may repeat what was sent, and is not
/// shown.
pub(super) fn code(bytes: &[u8]) -> Option<String> {
    let mut code = None;
    let _ = walk(bytes, |open, text| {
        if open.len() == 2 && open[0] == "Error" && open[1] == "Code" {
            code = Some(text.to_string());
        }
    });
    code.filter(|code| {
        !code.is_empty()
            && code.len() <= 64
            && code.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.')
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIST: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b</Name><IsTruncated>true</IsTruncated>
<NextContinuationToken>a&amp;b</NextContinuationToken>
<Contents><Key>x/a&lt;&#38;b</Key><Size>12</Size><Owner><ID>1</ID></Owner></Contents>
<Contents><Key>x/no-size</Key></Contents>
<CommonPrefixes><Prefix>x/</Prefix></CommonPrefixes></ListBucketResult>"#;

    #[test]
    fn lists_and_errors_are_read() {
        let expected = Page {
            objects: vec![Object { key: "x/a<&b".into(), bytes: 12 }],
            folders: vec!["x/".into()],
            next: Some("a&b".into()),
        };
        assert_eq!(page(LIST.as_bytes()), Some(expected));
        assert_eq!(page(b"<html></html>"), None);
        assert_eq!(page(&LIST.as_bytes()[..200]), None);
        let error = "<Error><Code>NoSuchBucket</Code><Message>AKIA</Message></Error>";
        assert_eq!(code(error.as_bytes()).as_deref(), Some("NoSuchBucket"));
        assert_eq!(code(b"<Error><Code>a secret with spaces</Code></Error>"), None);
    }

    proptest! {
        #[test]
        fn garbage_is_nothing(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), at in 0..400usize, cut in 0..600usize) {
            let _ = (page(&bytes), code(&bytes));
            let mut list = LIST.as_bytes().to_vec();
            list.truncate(cut);
            let place = at.min(list.len());
            list.splice(place..place, bytes.drain(..));
            let _ = (page(&list), code(&list));
        }
    }
}
