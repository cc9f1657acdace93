//! Cases as comma-separated values (RFC 4180), below a heading: `id`, `input`, `expected`, `tags`.
//!
//! Unaware of what a case must have.

use crate::text::digest::sha256;
use crate::text::json;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::mem::take;

/// Columns with a meaning.
const KNOWN: [&str; 4] = ["id", "input", "expected", "tags"];

/// Digits of a digest that is an id.
const DIGITS: usize = 12;

/// Something with its line, from 1.
type Lined<T> = (usize, T);

/// The cases. Without a column `input`, the columns of other names are its members. An empty cell
/// is absent; a case without an id has the digest of its input.
///
/// # Errors
/// What is wrong with the text, and on which line.
pub(super) fn cases(text: &str) -> Result<Vec<Lined<Map<String, Value>>>, Lined<String>> {
    let mut rows = rows(text)?.into_iter();
    let Some((line, head)) = rows.next() else {
        return Ok(Vec::new());
    };
    for (at, name) in head.iter().enumerate() {
        if let Some(message) = objection_to(name, head.len()) {
            return Err((line, message));
        }
        if name.is_empty() {
            return Err((line, format!("column {} has no name", at + 1)));
        }
        if head[..at].contains(name) {
            return Err((line, format!("there are two columns {name:?}")));
        }
    }
    let has_input = head.iter().any(|name| name == "input");
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut cases = Vec::new();
    for (line, cells) in rows {
        if cells.len() > head.len() {
            let message = format!("{} cells, and only {} columns", cells.len(), head.len());
            return Err((line, message));
        }
        let (mut case, mut members) = (Map::new(), Map::new());
        for (name, cell) in head.iter().zip(cells).filter(|(_, cell)| !cell.is_empty()) {
            let (to, value) = match &**name {
                "tags" => (&mut case, cell.split_whitespace().collect()),
                "id" | "input" | "expected" => (&mut case, cell.into()),
                _ if has_input => (&mut case, cell.into()),
                _ => (&mut members, cell.into()),
            };
            to.insert(name.clone(), value);
        }
        if !members.is_empty() {
            case.insert("input".to_owned(), members.into());
        }
        if let (None, Some(input)) = (case.get("id"), case.get("input")) {
            let digest = sha256(json::text(input).as_bytes())[..DIGITS].to_owned();
            let count = seen.entry(digest.clone()).or_default();
            *count += 1;
            let id = match *count {
                1 => digest,
                count => format!("{digest}_{count}"),
            };
            case.insert("id".to_owned(), id.into());
        }
        cases.push((line, case));
    }
    Ok(cases)
}

/// The reason why a heading is certainly not what was meant.
fn objection_to(name: &str, columns: usize) -> Option<String> {
    if name.contains('\t') || columns == 1 && name.contains(';') {
        let other = if name.contains('\t') {
            "tabs"
        } else {
            "semicolons"
        };
        return Some(format!(
            "the heading is divided by {other}; comma-separated values are read"
        ));
    }
    let plain = name.trim().to_lowercase();
    let meant = KNOWN
        .into_iter()
        .find(|known| *known == plain && *known != name)?;
    Some(format!("there is a column {name:?}; write it as {meant}"))
}

/// The rows, without those that are empty.
fn rows(text: &str) -> Result<Vec<Lined<Vec<String>>>, Lined<String>> {
    let mut chars = text.chars().peekable();
    let (mut rows, mut cells, mut cell) = (Vec::new(), Vec::new(), String::new());
    let (mut line, mut begin, mut was_quoted) = (1, 1, false);
    loop {
        let next = chars.next();
        match next {
            Some('"') if cell.is_empty() && !was_quoted => {
                let open = line;
                was_quoted = true;
                loop {
                    match chars.next() {
                        None => return Err((open, "a quote is not closed".to_owned())),
                        Some('"') if chars.next_if_eq(&'"').is_none() => break,
                        Some(c) => {
                            line += usize::from(c == '\n');
                            cell.push(c);
                        }
                    }
                }
                if !matches!(chars.peek(), None | Some(',' | '\r' | '\n')) {
                    return Err((line, "there is text after a closing quote".to_owned()));
                }
            }
            Some(',') => {
                cells.push(take(&mut cell));
                was_quoted = false;
            }
            Some('\r') if chars.peek() == Some(&'\n') => {}
            Some('\n') | None => {
                if !cells.is_empty() || !cell.is_empty() || was_quoted {
                    cells.push(take(&mut cell));
                    rows.push((begin, take(&mut cells)));
                }
                if next.is_none() {
                    return Ok(rows);
                }
                line += 1;
                (begin, was_quoted) = (line, false);
            }
            Some(c) => cell.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(text: &str) -> Vec<Value> {
        let cases = cases(text).unwrap().into_iter();
        cases.map(|(line, case)| json!([line, case])).collect()
    }

    #[test]
    fn a_table_is_read_as_rfc_4180_says() {
        let text =
            "id,input,expected,tags\r\na,\"x,\"\"y\"\"\r\nz\",\"\",one two\r\n\r\nb, 5\" ,q\n";
        let wanted = [
            json!([2, {"id": "a", "input": "x,\"y\"\r\nz", "tags": ["one", "two"]}]),
            json!([5, {"id": "b", "input": " 5\" ", "expected": "q"}]),
        ];
        assert_eq!(read(text), wanted);
        assert!(read("input").is_empty());
        assert!(read("").is_empty());
    }

    #[test]
    fn columns_are_members_without_one_called_input_and_digests_are_ids() {
        let found = read("q,lang,expected\nhi,en,x\nhi,en,y\nhi,,z");
        assert_eq!(found[0][1]["input"], json!({"q": "hi", "lang": "en"}));
        assert_eq!(found[2][1]["input"], json!({"q": "hi"}));
        let id = |at: usize| found[at][1]["id"].as_str().unwrap();
        assert_eq!(id(1), format!("{}_2", id(0)));
        assert_ne!(id(2), id(0));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let wrong = |text: &str| cases(text).unwrap_err();
        for (text, line, words) in [
            ("a,b\n1,2\n1,2,3", 3, "3 cells, and only 2 columns"),
            ("a,b,a\n", 1, "two columns \"a\""),
            ("a,,b\n", 1, "column 2 has no name"),
            ("a\n\"x\ny\"\n\"open\n\n", 4, "a quote is not closed"),
            ("a\n\"x\"y\n", 2, "text after a closing quote"),
            ("id\tinput\n", 1, "divided by tabs"),
            ("id;input\na;b\n", 1, "divided by semicolons"),
            ("id,Input\n", 1, "column \"Input\"; write it as input"),
            ("id, input\n", 1, "column \" input\"; write it as input"),
        ] {
            let (at, message) = wrong(text);
            assert_eq!(at, line, "{text:?}");
            assert!(message.contains(words), "{message}");
        }
    }
}
