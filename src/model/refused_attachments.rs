//! Refusals of a request because of its attachments, in the words of each service.
//!
//! Pure.

use super::attempt::Attempt;

/// How words begin that speak of attachments.
const BEGINNINGS: [&str; 4] = ["image", "picture", "dimension", "multimodal"];

const WORDS: [&str; 4] = ["document", "documents", "media", "pdf"];

const PHRASES: [&str; 3] = ["content part type", "unsupported content", "input_file"];

/// Why a service refuses a request, and its status, if it does because of the attachments.
pub(super) fn refusal_of_attachments(attempt: &Attempt) -> Option<(String, Option<u16>)> {
    let (why, http_status) = match attempt {
        Attempt::Refused {
            why, http_status, ..
        }
        | Attempt::Again {
            why, http_status, ..
        } => (why, *http_status),
        Attempt::Quota {
            why, http_status, ..
        } => (why, Some(*http_status)),
        Attempt::Body { .. } | Attempt::Lost | Attempt::Stopped { .. } => return None,
    };
    // In front of a service's words is its address, and in front of a program's its name.
    let said = match http_status {
        Some(status) => why.split_once(&format!(" says {status}: "))?.1,
        None => why.split_once(" ended with exit code ")?.1,
    };
    (speaks_of_attachments(said) || wants_answer_between(said)).then(|| (why.clone(), http_status))
}

fn speaks_of_attachments(said: &str) -> bool {
    let said = said.to_lowercase();
    let mut words = said.split(|c: char| !c.is_alphanumeric());
    PHRASES.iter().any(|phrase| said.contains(phrase))
        || words.any(|word| {
            WORDS.contains(&word) || BEGINNINGS.iter().any(|begin| word.starts_with(begin))
        })
}

/// True if a service, as Mistral's, rejects a user's message right after results.
pub(crate) fn wants_answer_between(said: &str) -> bool {
    said.contains("Unexpected role 'user' after role 'tool'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_service_has_its_own_words() {
        for said in [
            "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj",
            "unsupported content[].type",
            "Unsupported chat content part type: 'file'",
            "At most 0 image(s) may be provided in one prompt.",
            "messages.0.content.1.image.source.base64: Could not process image",
            "At least one of the image dimensions exceed max allowed size: 8000 pixels",
            "No endpoints found that support image input",
            "Invalid content type. image_url is only supported by certain models.",
            "A maximum of 100 PDF pages may be provided: document.source",
            "Unsupported Media Type",
            "'input_file' is not supported by llamacpp at this moment",
            "messages.2.content.0.pdf.source.base64.data: The PDF specified was not valid.",
            "Could not process PDF",
        ] {
            assert!(speaks_of_attachments(said), "{said}");
        }
        for said in [
            "retry immediately",
            "see the documentation at https://docs.example",
            "prompt is too long: 9 tokens > 8 maximum",
            "imagine",
        ] {
            assert!(!speaks_of_attachments(said), "{said}");
        }
    }
}
