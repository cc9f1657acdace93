//! The line of progress that a trial's end prints on stderr.

use super::{Runner, TrialIx};
use crate::text::amounts::format_millis;
use crate::text::disguise::printable;
use crate::text::shorten::in_short;
use crate::unix::terminal::Tone;

impl Runner<'_> {
    /// Prints that a trial has ended, with its reason and what a program said of it.
    pub(super) fn print_end(
        &mut self,
        trial: TrialIx,
        status: &str,
        reason: &str,
        why: Option<&str>,
    ) {
        self.done += 1;
        let (suite, name) = self.names(trial);
        let end = self.record.trial(suite, name).end.as_ref();
        let took = format_millis(end.map_or(0, |end| end.duration_ms));
        let (case, number) = (&self.case(trial).id, self.planned(trial).number);
        let setting = match self.suite(trial).suite.settings.len() {
            1 => String::new(),
            _ => format!(" {}", self.setting(trial).name),
        };
        let head = format!(
            "[{}/{}] {suite} {case}.{number}{setting} ",
            self.done, self.all
        );
        let is_plain = status == reason || reason == "final_answer" || reason == "success";
        let because = match why {
            Some(why) => format!(" ({reason}): {}", in_short(why, 200)),
            None if is_plain => String::new(),
            None => format!(" ({reason})"),
        };
        let tone = match status {
            "passed" => Tone::Said,
            _ => Tone::Bad,
        };
        self.options.screen.progress(&[
            (Tone::Dim, &printable(&head)),
            (tone, &status.replace('_', " ")),
            (Tone::Dim, &printable(&format!("{because}, {took}"))),
        ]);
    }
}
