//! The rows that describe a command line, as static data.

/// A program and its commands.
#[derive(Debug)]
pub(crate) struct ProgramTable {
    /// The name that `-h` shows: `delta`, `delta flow`.
    pub name: &'static str,
    pub commands: &'static [CommandTable],
    /// Commands that no help lists; they read the words behind them themselves.
    pub hidden: &'static [&'static str],
    /// Accepted before a command.
    pub options: &'static [OptionRow],
}

/// A command and all that may follow its name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommandTable {
    pub name: &'static str,
    /// Imperative, for the list of commands.
    pub about: &'static str,
    /// Paragraphs between the usage and the options.
    pub text: &'static str,
    pub operands: &'static [OperandRow],
    /// Rows in groups, so that commands can share some.
    pub options: &'static [&'static [OptionRow]],
    /// Options end at the first operand, and what follows it is data.
    pub options_first: bool,
    /// The words behind the name belong to another program, `-h` too.
    pub is_raw: bool,
}

/// An option.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OptionRow {
    /// `-w`; may be empty.
    pub short: &'static str,
    /// `--work-dir`.
    pub long: &'static str,
    /// Other long names, which no help lists.
    pub aliases: &'static [&'static str],
    pub value: Option<ValueSpec>,
    pub is_required: bool,
    /// Given twice, both values count; of others the last.
    pub is_repeatable: bool,
    /// Imperative; empty if no help lists the option.
    pub about: &'static str,
}

/// An operand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OperandRow {
    pub value: ValueSpec,
    pub is_required: bool,
    pub is_repeatable: bool,
}

/// The value of an option, or an operand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ValueSpec {
    /// `DIR`; empty for [`ValueKind::Words`] that are shown themselves.
    pub name: &'static str,
    pub kind: ValueKind,
}

/// The values of an option, for the parser and for completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueKind {
    /// Any UTF-8.
    Text,
    /// Any bytes.
    Bytes,
    /// KEY=VALUE.
    Pair,
    /// A whole number, at least this.
    Number(u64),
    /// One of these, in any case and with `-` for `_`.
    Words(&'static [&'static str]),
    File,
    Directory,
    Workspace,
    /// An id, the beginning of one, LATEST, or the path of a run's directory.
    Run,
    /// The id of a run that may be new.
    RunId,
    /// Begins the command line of another program, to which all further words belong.
    Command,
    /// Values that only the program itself can list: its templates, nodes, sessions.
    Other,
    /// An option that is gone; the error names its successor.
    Renamed(&'static str),
}

/// The form in which results are printed.
pub(crate) const FORMATS: ValueKind = ValueKind::Words(&["text", "json"]);

/// How results are printed, or all that leads to one.
pub(crate) const FEED_FORMATS: ValueKind = ValueKind::Words(&["text", "json", "jsonl"]);

/// How tables are printed.
pub(crate) const TABLE_FORMATS: ValueKind = ValueKind::Words(&["text", "json", "csv"]);

/// The word `raw` of older scripts.
pub(crate) const WORD_ALIASES: &[(&str, &str)] = &[("raw", "text")];

pub(crate) const HELP: OptionRow = flag("-h", "--help", "print this text, or the manual page");
pub(crate) const VERSION: OptionRow = flag("-V", "--version", "print the version");

/// The name of a run as an option, accepted wherever one is an operand.
const RUN_OPERAND: OptionRow = valued("", "--run-id", "RUN", ValueKind::Run, "");

pub(crate) const fn flag(
    short: &'static str,
    long: &'static str,
    about: &'static str,
) -> OptionRow {
    OptionRow {
        short,
        long,
        aliases: &[],
        value: None,
        is_required: false,
        is_repeatable: false,
        about,
    }
}

pub(crate) const fn valued(
    short: &'static str,
    long: &'static str,
    name: &'static str,
    kind: ValueKind,
    about: &'static str,
) -> OptionRow {
    OptionRow {
        value: Some(ValueSpec { name, kind }),
        ..flag(short, long, about)
    }
}

pub(crate) const fn renamed(long: &'static str, successor: &'static str) -> OptionRow {
    valued("", long, "", ValueKind::Renamed(successor), "")
}

pub(crate) const fn operand(name: &'static str, kind: ValueKind) -> OperandRow {
    OperandRow {
        value: ValueSpec { name, kind },
        is_required: true,
        is_repeatable: false,
    }
}

/// A command without operands and options.
pub(crate) const fn command(name: &'static str, about: &'static str) -> CommandTable {
    CommandTable {
        name,
        about,
        text: "",
        operands: &[],
        options: &[],
        options_first: false,
        is_raw: false,
    }
}

impl OptionRow {
    pub(crate) const fn required(mut self) -> Self {
        self.is_required = true;
        self
    }

    pub(crate) const fn repeatable(mut self) -> Self {
        self.is_repeatable = true;
        self
    }

    /// True if this is one of its names, dashes included.
    pub(crate) fn has_name(&self, name: &str) -> bool {
        self.short == name || self.long == name || self.aliases.contains(&name)
    }

    /// `-w DIR`, as short as it gets.
    pub(crate) fn usage(&self) -> String {
        let name = match self.short {
            "" => self.long,
            short => short,
        };
        match &self.value {
            Some(value) => format!("{name} {}", value.display_name()),
            None => name.to_owned(),
        }
    }
}

impl OperandRow {
    pub(crate) const fn optional(mut self) -> Self {
        self.is_required = false;
        self
    }

    pub(crate) const fn repeatable(mut self) -> Self {
        self.is_repeatable = true;
        self
    }
}

impl ValueSpec {
    /// The name, or the words joined by bars.
    pub(crate) fn display_name(&self) -> String {
        match self.kind {
            ValueKind::Words(words) if self.name.is_empty() => words.join("|"),
            _ => self.name.to_owned(),
        }
    }
}

impl CommandTable {
    /// All options, with `-h` at the end.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &'static OptionRow> {
        let own = self.options.iter().copied().flatten();
        own.chain((!self.is_raw).then_some(&HELP))
    }

    /// The option that stands for an operand that is a run, unless an option of the command has its name.
    pub(crate) fn run_operand(&self) -> Option<&'static OptionRow> {
        let is_run = |row: &OperandRow| row.value.kind == ValueKind::Run;
        let is_taken = || self.rows().any(|row| row.long == RUN_OPERAND.long);
        (self.operands.iter().any(is_run) && !is_taken()).then_some(&RUN_OPERAND)
    }
}

impl ProgramTable {
    pub(crate) fn command(&self, name: &str) -> Option<&'static CommandTable> {
        self.commands.iter().find(|command| command.name == name)
    }
}

/// The names of commands, in the order of their table.
pub(crate) const fn names<const N: usize>(commands: &[CommandTable; N]) -> [&'static str; N] {
    let mut names = [""; N];
    let mut at = 0;
    while at < N {
        names[at] = commands[at].name;
        at += 1;
    }
    names
}

/// The words of choices.
pub(crate) const fn words<T: Copy, const N: usize>(
    choices: &[(&'static str, T); N],
) -> [&'static str; N] {
    let mut words = [""; N];
    let mut at = 0;
    while at < N {
        words[at] = choices[at].0;
        at += 1;
    }
    words
}
