//! A real browser without a window, if there is one.

use std::io::Read;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// A page as a browser has shown it.
pub struct Opened {
    /// The document when its scripts had run, as HTML.
    pub dom: String,
    /// What the browser's console says.
    pub console: Vec<String>,
    /// What was asked for, without what the browser asks its makers.
    pub requests: Vec<String>,
}

/// The browser's program; none, with a notice, if there is none.
fn program() -> Option<&'static str> {
    static FOUND: OnceLock<Option<&str>> = OnceLock::new();
    let found = *FOUND.get_or_init(|| {
        let mut programs = ["chromium", "chromium-browser", "google-chrome"].into_iter();
        programs.find(|program| {
            let mut command = Command::new(program);
            command.arg("--version").stdout(Stdio::null());
            command.stderr(Stdio::null()).status().is_ok()
        })
    });
    if found.is_none() {
        eprintln!("skipped: there is no chromium");
    }
    found
}

/// Opens a file. Whatever it wants from a network, this machine included, goes to a proxy that only listens.
/// A browser that was given too little of the machine to finish the page's script is given more time.
#[track_caller]
pub fn open(home: &Path, file: &Path, fragment: &str) -> Option<Opened> {
    let program = program()?;
    let budgets = [20_000, 60_000, 180_000];
    let mut pages = budgets
        .into_iter()
        .map(|budget| open_for(program, (home, file), fragment, budget));
    let last = budgets.len() - 1;
    let mut at = 0;
    pages.find(|page| {
        at += 1;
        page.attribute("data-ready").is_some() || at > last
    })
}

#[track_caller]
fn open_for(program: &str, (home, file): (&Path, &Path), fragment: &str, budget: u32) -> Opened {
    let proxy = TcpListener::bind("127.0.0.1:0").expect("a port");
    let profile = home.join("browser");
    let output = Command::new("timeout")
        .arg("120")
        .arg(program)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-software-rasterizer",
            "--no-first-run",
        ])
        .args([
            "--disable-background-networking",
            "--disable-component-update",
        ])
        .args([
            "--disable-sync",
            "--disable-domain-reliability",
            "--no-pings",
        ])
        .args(["--disable-extensions", "--disable-default-apps"])
        .arg("--enable-logging=stderr")
        .arg(format!("--virtual-time-budget={budget}"))
        .arg(format!(
            "--proxy-server={}",
            proxy.local_addr().expect("an address")
        ))
        .arg("--proxy-bypass-list=<-loopback>")
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg("--dump-dom")
        .arg(format!("file://{}{fragment}", file.display()))
        .env("HOME", home)
        .stdin(Stdio::null())
        .output()
        .expect("timeout(1)");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{program}: {stderr}");
    let requests = asked_of(&proxy);
    std::fs::remove_dir_all(profile).ok();
    Opened {
        dom: String::from_utf8(output.stdout).expect("a document in UTF-8"),
        console: stderr
            .lines()
            .filter(|line| line.contains("CONSOLE"))
            .map(str::to_owned)
            .collect(),
        requests,
    }
}

/// The first lines of what has been sent to a proxy.
fn asked_of(proxy: &TcpListener) -> Vec<String> {
    proxy.set_nonblocking(true).expect("a socket");
    let mut requests = Vec::new();
    while let Ok((mut stream, _)) = proxy.accept() {
        stream
            .set_nonblocking(true)
            .expect("a socket, whose peer has gone");
        let mut text = vec![0; 4096];
        let read = stream.read(&mut text).unwrap_or(0);
        let text = String::from_utf8_lossy(&text[..read]).into_owned();
        let line = text.lines().next().unwrap_or_default().to_owned();
        let host = line.split_whitespace().nth(1).unwrap_or_default();
        let host = host.trim_start_matches("http://");
        let host = host.split(['/', ':']).next().unwrap_or_default();
        let is_own = [".google.com", ".googleapis.com", ".gvt1.com"]
            .iter()
            .any(|makers| host.ends_with(makers));
        // One that was opened ahead of need and closed has asked for nothing.
        if !is_own && !line.is_empty() {
            requests.push(line);
        }
    }
    requests
}

impl Opened {
    /// What the page's script has made: all behind the script.
    pub fn content(&self) -> &str {
        self.dom.rsplit("</script>").next().unwrap_or_default()
    }

    /// An attribute of the root element.
    pub fn attribute(&self, name: &str) -> Option<&str> {
        let root = self.dom.split_once("<html")?.1.split_once('>')?.0;
        let value = root.split_once(&format!("{name}=\""))?.1;
        value.split('"').next()
    }

    /// It has become what it should be, and wanted nothing from anywhere.
    #[track_caller]
    pub fn is_well(&self) -> &Self {
        assert_eq!(self.console, [""; 0]);
        assert_eq!(self.requests, [""; 0]);
        assert_eq!(self.attribute("data-trouble"), None, "{}", self.content());
        assert!(
            self.attribute("data-ready").is_some(),
            "it was not finished"
        );
        self
    }

    #[track_caller]
    pub fn shows(&self, text: &str) -> &Self {
        assert!(
            self.content().contains(text),
            "{text:?} is not in {}",
            self.content()
        );
        self
    }

    #[track_caller]
    pub fn shows_not(&self, text: &str) -> &Self {
        assert!(
            !self.content().contains(text),
            "{text:?} is in {}",
            self.content()
        );
        self
    }
}
