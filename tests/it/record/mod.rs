pub mod attachments;
mod damage;
mod due;
mod feed;
mod journal;
mod old_runs;
mod recorder;
