//! Compresses the texts that the programs carry: the manual, and the script and the style of a report. Makes the
//! programs of a debug build start quickly and check their own tables.

use miniz_oxide::deflate::compress_to_vec;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The scripts of pages, each with its parts in their order.
const SCRIPTS: [(&str, &[&str]); 2] = [
    (
        "report.js",
        &["shared", "read", "rows", "flow_steps", "overview", "report"],
    ),
    ("evaluation.js", &["shared", "evaluation"]),
];

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
    for (name, parts) in SCRIPTS {
        let files = parts
            .iter()
            .map(|part| format!("src/view/report/{part}.js"));
        let parts: Vec<String> = files.collect();
        let script: io::Result<String> = parts.iter().map(fs::read_to_string).collect();
        pack(name, &script?, &parts)?;
    }
    let style = "src/view/report/report.css".to_owned();
    pack("report.css", &fs::read_to_string(&style)?, &[style])?;
    prepare_tests()?;
    shrink_release()
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

/// Links a release without what takes room and does nothing: a tenth of the program. Compilers since 1.92 write tables
/// for unwinding even where a panic aborts.
///
/// Not beside debug information, in static programs or for another target, nor if the linker is gold or the like.
fn shrink_release() -> io::Result<()> {
    let text = |name| env::var(name).unwrap_or_default();
    let flags = text("CARGO_ENCODED_RUSTFLAGS");
    let is_meant = text("PROFILE") == "release"
        && text("DEBUG") == "false"
        && text("CARGO_CFG_PANIC") == "abort"
        && text("CARGO_CFG_TARGET_ENV") == "gnu"
        && !text("CARGO_CFG_TARGET_FEATURE").contains("crt-static")
        && text("HOST") == text("TARGET");
    let is_usual_linker = !flags.contains("linker=")
        && !flags.contains("fuse-ld")
        && env::var_os("RUSTC_LINKER").is_none();
    if !is_meant || !is_usual_linker {
        return Ok(());
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let script = out.join("no_tables.ld");
    let tables = "*(.eh_frame) *(.eh_frame_hdr) *(.gcc_except_table .gcc_except_table.*)";
    let discard = format!("SECTIONS {{ /DISCARD/ : {{ {tables} }} }} INSERT AFTER .text;\n");
    fs::write(&script, discard)?;
    let arg = format!("-T{}", script.display());
    let mut trial = Command::new("cc");
    trial.args(["-shared", "-nostdlib", "-x", "c", "/dev/null", "-o"]);
    trial.arg(out.join("trial")).arg(&arg);
    if trial.output().is_ok_and(|it| it.status.success()) {
        writeln!(io::stdout(), "cargo::rustc-link-arg-bin=delta={arg}")?;
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
