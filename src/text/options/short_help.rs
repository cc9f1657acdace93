//! The output of `-h`, made from the tables.

use super::table::{CommandTable, OperandRow, OptionRow, ProgramTable, ValueSpec};
use crate::text::manual;
use crate::text::shorten::push_wrapped;

/// Names of options that are longer have a line to themselves.
const NAMES: usize = 26;

/// `delta log [OPTIONS] [RUN]`.
pub(super) fn usage_line(program: &ProgramTable, command: &CommandTable) -> String {
    let mut words = vec![program.name.to_owned(), command.name.to_owned()];
    let mut optional = command.options.iter().copied().flatten();
    if optional.any(|row| !row.is_required && !row.about.is_empty()) {
        words.push("[OPTIONS]".to_owned());
    }
    let required = command.rows().filter(|row| row.is_required);
    words.extend(required.map(OptionRow::usage));
    words.extend(command.operands.iter().map(operand_usage));
    words.join(" ")
}

fn operand_usage(row: &OperandRow) -> String {
    let name = row.value.display_name();
    let name = if row.is_repeatable {
        format!("{name}...")
    } else {
        name
    };
    if row.is_required {
        name
    } else {
        format!("[{name}]")
    }
}

/// The output of `-h`, or the manual page of this name in full.
pub(crate) fn help_text(
    program: &ProgramTable,
    command: Option<&CommandTable>,
    page: Option<&str>,
) -> String {
    match (page.and_then(manual::find), command) {
        (Some(page), _) => page.text().to_owned(),
        (None, Some(command)) => command_help(program, command),
        (None, None) => overview(program),
    }
}

/// The commands and the options before them.
fn overview(program: &ProgramTable) -> String {
    let mut out = format!("usage: {} COMMAND [OPTIONS]\n\n", program.name);
    let commands: Vec<(String, &str)> = program
        .commands
        .iter()
        .map(|command| (command.name.to_owned(), command.about))
        .collect();
    push_rows(&mut out, &commands);
    out.push('\n');
    push_rows(&mut out, &option_rows(program.options.iter()));
    out
}

/// Groups of everyday commands, each with its name and a line for each command.
pub(crate) fn groups_text(program: &ProgramTable, groups: &[(&str, &[&str])]) -> String {
    let name = program.name;
    let mut out = format!("usage: {name} COMMAND [OPTIONS]\n");
    let lengths = groups.iter().flat_map(|(_, names)| names.iter());
    let column = lengths.map(|name| name.len()).max().unwrap_or(0);
    for (group, names) in groups {
        out.push_str(&format!("\n{group}\n"));
        let commands = names.iter().filter_map(|name| program.command(name));
        let rows: Vec<_> = commands
            .map(|it| (format!("{:column$}", it.name), it.about))
            .collect();
        push_rows(&mut out, &rows);
    }
    out.push_str(&format!(
        "\n{name} COMMAND -h lists a command's options, {name} help WORD searches the manual,\n\
         {name} help -a lists all commands and pages.\n"
    ));
    out
}

/// The usage, the text and the options of a command.
pub(crate) fn command_help(program: &ProgramTable, command: &CommandTable) -> String {
    let mut out = format!("usage: {}\n\n", usage_line(program, command));
    for paragraph in command.text.split("\n\n").filter(|text| !text.is_empty()) {
        push_wrapped(&mut out, "", paragraph);
        out.push('\n');
    }
    push_rows(&mut out, &option_rows(command.rows()));
    out
}

fn option_rows<'r>(rows: impl Iterator<Item = &'r OptionRow>) -> Vec<(String, &'static str)> {
    let listed = rows.filter(|row| !row.about.is_empty());
    let shown = |row: &OptionRow| {
        let short = match row.short {
            "" => "    ".to_owned(),
            short => format!("{short}, "),
        };
        let value = row
            .value
            .as_ref()
            .map(ValueSpec::display_name)
            .map_or_else(String::new, |value| format!(" {value}"));
        (format!("{short}{}{value}", row.long), row.about)
    };
    listed.map(shown).collect()
}

/// Two columns, the second one wrapped.
fn push_rows(out: &mut String, rows: &[(String, &str)]) {
    let widths = rows.iter().map(|(name, _)| name.len());
    let column = widths.filter(|width| *width <= NAMES).max().unwrap_or(0);
    let margin = " ".repeat(column + 4);
    for (name, about) in rows {
        let mut text = String::new();
        push_wrapped(&mut text, &margin, about);
        if name.len() <= column {
            out.push_str(&format!("  {name:column$}  {}", text.trim_start()));
        } else {
            out.push_str(&format!("  {name}\n{text}"));
        }
    }
}
