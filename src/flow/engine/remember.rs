//! The context of a step before it begins, and what a step leaves in the files of stores.

use super::FlowEngine;
use super::programs::BeginningStep;
use crate::error::Result;
use crate::flow::context::recall::Recall;
use crate::flow::context::select::{AssembledContext, select_items};
use crate::record::event::FlowEvent;

impl FlowEngine<'_> {
    /// Reads what the run remembers, before the journal is read back.
    pub(super) fn begin_recall(&mut self) -> Result<()> {
        let place = &self.place;
        let (flow, root) = (place.flow, place.workspace.root.as_path());
        self.context = Recall::new(flow, root, &place.run)?;
        if self.options.answered.is_some() {
            self.context.leave_stores();
        }
        if !self.options.is_live {
            return Ok(());
        }
        match self
            .context
            .begin(flow, root, &place.run, self.programs.signals)
        {
            Err(_) if self.programs.take_stop() => Ok(()),
            begun => begun,
        }
    }

    /// The context of a step: the empty one if it runs nothing.
    pub(super) fn assemble_context(
        &self,
        beginning: &BeginningStep,
    ) -> std::result::Result<AssembledContext, String> {
        let (place, step) = (&self.place, &beginning.step);
        let answered = self.options.answered.as_ref();
        if let Some(context) = answered.and_then(|it| it.context(place, step)) {
            return Ok(context);
        }
        let settings = &place.flow.nodes[step.node];
        let profile = place.flow.profile(step.node).filter(|_| settings.runs());
        let (Some(profile), Some(router)) = (profile, self.roots.router(step.key)) else {
            return Ok(AssembledContext::none());
        };
        let notes = router.notes(step.key.step);
        let candidates = self
            .context
            .candidates(place.flow, &profile, step.key.root, &notes)?;
        Ok(select_items(&profile, &beginning.input, &candidates))
    }

    /// Appends the items of steps that have ended to the files of stores, once the ends are on disk, and records it.
    /// `once`: a process that died may have appended some of it.
    pub(super) fn store_items(&mut self, once: bool) -> Result<()> {
        if self.context.owed().is_empty() || !self.options.is_live {
            return Ok(());
        }
        self.events.journal.sync()?;
        match self.context.pay(once, self.programs.signals) {
            Ok(paid) => {
                for (store, item) in paid {
                    self.events.journal.add_line(FlowEvent::Memory, |line| {
                        line.put("task_id", &item.task_id)
                            .put("node_id", &item.node_id)
                            .put("store", store.name())
                            .put("item_id", &item.id);
                    });
                }
                Ok(())
            }
            // Another process holds the file, and a signal does not wait. The next start appends it.
            Err(_) if self.programs.take_stop() => Ok(()),
            Err(error) => Err(error),
        }
    }
}
