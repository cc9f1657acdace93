//! The line of progress that a trial's end prints on stderr.

use super::{Runner, TrialRef};
use crate::text::amounts::format_millis;
use crate::text::disguise::printable;
use crate::text::shorten::in_short;
use crate::unix::terminal::Tone;

impl Runner<'_> {
    /// Prints a warning, unless it has been printed.
    pub(super) fn warn_once(&mut self, text: String) {
        if !self.warned.contains(&text) {
            let shown = format!("warning: {}", printable(&text));
            self.start.screen.warn_as(self.start.program, &shown);
            self.warned.insert(text);
        }
    }

    /// Prints that a trial has ended, with its reason and what a program said of it.
    pub(super) fn print_end(
        &mut self,
        trial: TrialRef<'_>,
        status: &str,
        reason: &str,
        why: Option<&str>,
    ) {
        self.done += 1;
        let end = trial.record(&mut self.record).end.as_ref();
        let took = format_millis(end.map_or(0, |end| end.duration_ms));
        let (of, plan) = (trial.of.suite, trial.plan);
        let mut head = format!(
            "[{}/{}] {} {}.{} ",
            self.done, self.all, of.name, plan.chosen.case.id, plan.number
        );
        if of.settings.len() > 1 {
            head.push_str(&format!("{} ", plan.setting.name));
        }
        let is_plain = [status, "final_answer", "success"].contains(&reason);
        let because = match why {
            Some(why) => format!(" ({reason}): {}", in_short(why, 200)),
            None if is_plain => String::new(),
            None => format!(" ({reason})"),
        };
        let tone = match status {
            "passed" => Tone::Said,
            _ => Tone::Bad,
        };
        self.start.screen.progress(&[
            (Tone::Dim, &printable(&head)),
            (tone, &status.replace('_', " ")),
            (Tone::Dim, &printable(&format!("{because}, {took}"))),
        ]);
    }
}
