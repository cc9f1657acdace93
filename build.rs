//! Compresses the texts that the programs carry: the manual, and the script and the style of a report. Makes the
//! programs of a debug build start quickly and check their own tables.

use miniz_oxide::deflate::compress_to_vec;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::{env, fs};

/// The parts of the script, in their order.
const SCRIPT: [&str; 5] = ["read", "rows", "flow_steps", "overview", "report"];

/// The slowest and best of miniz's levels.
const LEVEL: u8 = 10;

fn main() -> io::Result<()> {
    let mut pages: Vec<PathBuf> = fs::read_dir("man/text")?
        .map(|entry| Ok(entry?.path()))
        .collect::<io::Result<_>>()?;
    pages.sort();
    pages.push("man/index.txt".into());
    let mut manual = String::new();
    for page in &pages {
        let name = page.file_stem().unwrap_or_default().to_string_lossy();
        manual += &format!("{name}\0{}\0", fs::read_to_string(page)?);
    }
    pack("manual", &manual, &["man".to_owned()])?;
    let parts = SCRIPT.map(|part| format!("src/view/report/{part}.js"));
    let script: io::Result<String> = parts.iter().map(fs::read_to_string).collect();
    pack("report.js", &script?, &parts)?;
    let style = "src/view/report/report.css".to_owned();
    pack("report.css", &fs::read_to_string(&style)?, &[style])?;
    prepare_tests()
}

/// Programs for tests are linked at fixed addresses: the tests start them 15,000 times, and relocating one takes as
/// long as the rest of its start.
fn prepare_tests() -> io::Result<()> {
    let is = |name, value| env::var(name).is_ok_and(|it| it == value);
    let mut out = io::stdout();
    writeln!(out, "cargo::rustc-check-cfg=cfg(checked)")?;
    if is("PROFILE", "debug") {
        writeln!(out, "cargo::rustc-cfg=checked")?;
        if is("CARGO_CFG_TARGET_ENV", "gnu") {
            writeln!(out, "cargo::rustc-link-arg-bins=-no-pie")?;
        }
    }
    Ok(())
}

/// Writes a text as `NAME.deflate` for `text/packed`; made again when its sources change.
fn pack(name: &str, text: &str, sources: &[String]) -> io::Result<()> {
    let out = env::var_os("OUT_DIR").unwrap_or_default();
    let path = Path::new(&out).join(format!("{name}.deflate"));
    fs::write(path, compress_to_vec(text.as_bytes(), LEVEL))?;
    for source in sources {
        writeln!(io::stdout(), "cargo::rerun-if-changed={source}")?;
    }
    Ok(())
}
