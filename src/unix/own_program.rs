//! This program, to be started again for a part of its work.

use std::env::current_exe;

const NAME: &str = "delta";

/// The path of this program. One that has been replaced since it was started is the file that is there now.
pub(crate) fn own_program() -> String {
    let own = current_exe().ok();
    let paths = own.map(|own| [own.with_file_name(NAME), own]);
    let found = paths.into_iter().flatten().rfind(|path| path.is_file());
    // PATH decides.
    found.map_or_else(
        || NAME.to_owned(),
        |path| path.to_string_lossy().into_owned(),
    )
}
