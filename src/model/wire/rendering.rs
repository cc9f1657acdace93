//! A conversation that grows: what has been rendered of it, in the form of a service, and its digest.
//!
//! Unaware of what the blocks are. A block is a part of a message for Messages, and an item for Responses.

use crate::text::digest::PartsDigest;

/// Who a message is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MessageRole {
    User,
    Assistant,
}

impl MessageRole {
    fn opening(self) -> &'static [u8] {
        match self {
            Self::User => b"{\"role\":\"user\",\"content\":[",
            Self::Assistant => b"{\"role\":\"assistant\",\"content\":[",
        }
    }
}

/// A block that a cache may end with.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CacheMark {
    /// The place of its closing brace; `None` before the first.
    pub end: Option<usize>,
    /// The number of blocks up to it.
    pub count: usize,
}

/// The state of a rendering beside its bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct Position {
    /// The messages rendered so far, the last one still open.
    len: usize,
    digest: PartsDigest,
    role: Option<MessageRole>,
    blocks: usize,
    /// The number of those that are the model's reasoning.
    pub reasoning: usize,
    pub last: CacheMark,
    /// The last mark before the newest answer: where the request for it ended.
    pub before_answer: CacheMark,
    /// The system's blocks, as JSON strings.
    pub system: Vec<String>,
    /// Blocks of the user that follow the results of the calls.
    pub aside: Vec<Vec<u8>>,
    /// Something beside the system's blocks has been said.
    is_begun: bool,
}

/// A rendered conversation.
#[derive(Debug)]
pub(super) struct Rendering {
    pub out: Vec<u8>,
    pub at: Position,
    /// Blocks are grouped into messages by role; otherwise they are one list.
    has_roles: bool,
}

impl Rendering {
    /// An empty one, after these tools.
    pub(super) fn new(tools: &[u8], has_roles: bool) -> Self {
        let mut digest = PartsDigest::default();
        digest.add(tools);
        Self {
            out: Vec::new(),
            has_roles,
            at: Position {
                digest,
                ..Position::default()
            },
        }
    }

    /// The end of what has been rendered, for [`Self::back_to`].
    pub(super) fn position(&self) -> Position {
        let mut position = self.at.clone();
        position.len = self.out.len();
        position
    }

    pub(super) fn back_to(&mut self, position: Position) {
        self.out.truncate(position.len);
        self.at = position;
    }

    /// Adds a block of the system. False if the conversation has begun, so that there is no place for it.
    pub(super) fn system(&mut self, text: &str) -> bool {
        if self.at.is_begun {
            return false;
        }
        self.at.system.push(text.to_owned());
        true
    }

    /// The digest of everything so far.
    pub(super) fn prefix(&mut self) -> String {
        self.begin();
        self.at.digest.sum()
    }

    fn begin(&mut self) {
        if !self.at.is_begun {
            self.at.is_begun = true;
            let Position { digest, system, .. } = &mut self.at;
            for text in system.iter() {
                digest.add(text.as_bytes());
            }
            digest.add(b"");
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.at.blocks == 0
    }

    pub(super) fn role(&self) -> Option<MessageRole> {
        self.at.role
    }

    /// Adds the blocks that follow the results.
    pub(super) fn put_aside_blocks(&mut self) {
        for block in std::mem::take(&mut self.at.aside) {
            self.block(MessageRole::User, &block, true);
        }
    }

    /// Notes that an answer follows.
    pub(super) fn answer_follows(&mut self) {
        self.at.before_answer = self.at.last;
    }

    /// Adds a block: a JSON object. A cache may end with it if it `can_end`.
    pub(super) fn block(&mut self, role: MessageRole, block: &[u8], can_end: bool) {
        self.begin();
        let is_same = self.at.role == Some(role);
        let opens = self.has_roles && !is_same;
        self.out.extend_from_slice(match self.at.role {
            Some(_) if opens => b"]},",
            Some(_) => b",",
            None => b"",
        });
        if opens {
            self.out.extend_from_slice(role.opening());
        }
        if !is_same {
            self.at.digest.add(role.opening());
        }
        self.out.extend_from_slice(block);
        self.at.digest.add(block);
        self.at.role = Some(role);
        self.at.blocks += 1;
        if can_end {
            self.at.last = CacheMark {
                end: Some(self.out.len() - 1),
                count: self.at.blocks,
            };
        }
    }

    /// Appends the messages to a request, with `insertions` before closing braces, in order.
    pub(super) fn write<'i>(
        &self,
        out: &mut Vec<u8>,
        insertions: impl IntoIterator<Item = (usize, &'i [u8])>,
    ) {
        let mut from = 0;
        for (at, bytes) in insertions {
            out.extend_from_slice(&self.out[from..at]);
            out.extend_from_slice(bytes);
            from = at;
        }
        out.extend_from_slice(&self.out[from..]);
        if self.has_roles && self.at.role.is_some() {
            out.extend_from_slice(b"]}");
        }
    }
}
