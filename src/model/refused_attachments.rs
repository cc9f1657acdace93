//! Refusals of a request because of its attachments, in the words of each service.
//!
//! Pure.

use super::attempt::Failure;

/// Beginnings of words about attachments.
const BEGINNINGS: [&str; 4] = ["image", "picture", "dimension", "multimodal"];

const WORDS: [&str; 4] = ["document", "documents", "media", "pdf"];

const PHRASES: [&str; 3] = ["content part type", "unsupported content", "input_file"];

/// True if a service refuses a request because of the attachments.
pub(super) fn is_of_attachments(failure: &Failure) -> bool {
    // In front of a service's words is its address, and in front of a program's its name.
    let said = match failure.http_status {
        Some(status) => failure.why.split_once(&format!(" says {status}: ")),
        None => failure.why.split_once(" ended with exit code "),
    };
    said.is_some_and(|(_, said)| speaks_of_attachments(said) || wants_answer_between(said))
}

fn speaks_of_attachments(said: &str) -> bool {
    let lower = said.to_lowercase();
    let mut words = lower.split(|c: char| !c.is_alphanumeric());
    PHRASES.iter().any(|phrase| lower.contains(phrase))
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
