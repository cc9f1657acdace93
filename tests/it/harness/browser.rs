//! A real browser without a window, if there is one.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

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
#[track_caller]
pub fn open(home: &Path, file: &Path, fragment: &str) -> Option<Opened> {
    static BROWSER: Mutex<Option<Browser>> = Mutex::new(None);
    let program = program()?;
    // A test that has failed with it leaves the next one a new browser.
    let mut place = BROWSER.lock().unwrap_or_else(PoisonError::into_inner);
    let mut browser = place
        .take()
        .unwrap_or_else(|| Browser::start(program, home));
    let url = format!("file://{}{fragment}", file.display());
    let opened = browser.open(&url);
    *place = Some(browser);
    Some(opened)
}

/// A browser for all tests, which ends with them. It is spoken to in its debugging protocol
/// (<https://chromedevtools.github.io/devtools-protocol/>), over descriptors 3 and 4, each message with a 0 behind it.
struct Browser {
    requests: ChildStdin,
    replies: BufReader<ChildStdout>,
    last_id: u64,
    /// Its one page, which shows one document after the other: a new one would cost a second of a processor.
    page: Option<String>,
    /// Where the page looks for what is not a file.
    proxy: TcpListener,
    /// What it has reported since it was asked to open a document.
    events: Vec<Value>,
}

impl Browser {
    #[expect(clippy::zombie_processes, reason = "it ends after the tests")]
    #[track_caller]
    fn start(program: &str, home: &Path) -> Self {
        // The shell removes the profile when the tests, or the process that ran them, have ended.
        let script = r#"trap '' HUP INT TERM
            profile=$(mktemp -d -t delta-it-XXXXXXXX) || exit
            HOME=$profile "$@" --user-data-dir="$profile" --remote-debugging-pipe \
                3<&0 4>&1 < /dev/null > /dev/null 2>&1
            rm -rf "$profile""#;
        let mut child = Command::new("sh")
            .args(["-c", script, "sh", program])
            .args(["--headless", "--no-sandbox", "--no-first-run"])
            .args(["--disable-gpu", "--disable-software-rasterizer"])
            .args(["--disable-background-networking", "--disable-sync"])
            .args(["--disable-component-update", "--no-pings"])
            .args(["--disable-domain-reliability", "--disable-extensions"])
            .args(["--disable-default-apps", "--no-startup-window"])
            .env("TMPDIR", home.parent().expect("a directory"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let mut browser = Self {
            requests: child.stdin.take().expect("a pipe"),
            replies: BufReader::new(child.stdout.take().expect("a pipe")),
            last_id: 0,
            page: None,
            proxy: TcpListener::bind("127.0.0.1:0").expect("a port"),
            events: Vec::new(),
        };
        browser.open_page();
        browser
    }

    #[track_caller]
    fn open_page(&mut self) {
        let address = self.proxy.local_addr().expect("an address").to_string();
        let context = json!({"proxyServer": address, "proxyBypassList": "<-loopback>"});
        let context = self.ask("Target.createBrowserContext", context)["browserContextId"].take();
        let target = json!({"url": "about:blank", "browserContextId": context});
        let target = self.ask("Target.createTarget", target)["targetId"].take();
        let attached = json!({"targetId": target, "flatten": true});
        let attached = self.ask("Target.attachToTarget", attached);
        self.page = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            self.ask(&format!("{domain}.enable"), json!({}));
        }
        self.ask("Page.setLifecycleEventsEnabled", json!({"enabled": true}));
    }

    /// Puts a document into the page, and waits until it is read.
    #[track_caller]
    fn load(&mut self, url: &str) {
        self.events.clear();
        let loader = self.ask("Page.navigate", json!({"url": url}))["loaderId"].take();
        let is_read = |event: &Value| {
            let event = &event["params"];
            event["loaderId"] == loader && event["name"] == "DOMContentLoaded"
        };
        while !self.events.iter().any(is_read) {
            let event = self.read();
            self.events.push(event);
        }
    }

    /// The result of a command to the page, or to the browser before there is one. Events that come meanwhile are kept.
    #[track_caller]
    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.last_id += 1;
        let mut message = json!({"id": self.last_id, "method": method, "params": params});
        if let Some(session) = &self.page {
            message["sessionId"] = session.as_str().into();
        }
        write!(self.requests, "{message}\0").expect("the browser is there");
        loop {
            let mut reply = self.read();
            if reply["id"] == self.last_id {
                assert!(reply["error"].is_null(), "{method}: {reply}");
                return reply["result"].take();
            }
            self.events.push(reply);
        }
    }

    /// The next message.
    #[track_caller]
    fn read(&mut self) -> Value {
        let silence = Timespec {
            tv_sec: 150,
            tv_nsec: 0,
        };
        let mut message = Vec::new();
        while message.pop_if(|last| *last == 0).is_none() {
            if self.replies.buffer().is_empty() {
                let mut pipe = [PollFd::new(self.replies.get_ref(), PollFlags::IN)];
                let ready = poll(&mut pipe, Some(&silence)).expect("a pipe");
                assert_eq!(ready, 1, "the browser does not answer");
            }
            let part = self.replies.fill_buf().expect("a pipe");
            assert!(!part.is_empty(), "the browser has ended");
            let end = part.iter().position(|byte| *byte == 0);
            let read = end.map_or(part.len(), |end| end + 1);
            message.extend_from_slice(&part[..read]);
            self.replies.consume(read);
        }
        serde_json::from_slice(&message).expect("JSON")
    }

    #[track_caller]
    fn open(&mut self, url: &str) -> Opened {
        /// The document, a little after its scripts have said that it is ready, so that what they still do is seen;
        /// otherwise as it is after two minutes.
        const DOCUMENT: &str = "new Promise(done => {
            const root = document.documentElement, until = Date.now() + 120000;
            const look = () => 'ready' in root.dataset || Date.now() > until
                ? setTimeout(() => done(root.outerHTML), 150) : setTimeout(look, 10);
            look();
        })";
        self.load(url);
        let asked = json!({"expression": DOCUMENT, "awaitPromise": true});
        let dom = self.ask("Runtime.evaluate", asked);
        let dom = dom["result"]["value"]
            .as_str()
            .expect("a document")
            .to_owned();
        let asked = self.reported("Network.requestWillBeSent");
        let urls = asked.filter_map(|event| event["params"]["request"]["url"].as_str());
        let is_local = |url: &&str| ["file:", "data:"].iter().any(|it| url.starts_with(it));
        let asked = urls.filter(|url| !is_local(url)).map(str::to_owned);
        let said = [
            "Runtime.consoleAPICalled",
            "Runtime.exceptionThrown",
            "Log.entryAdded",
        ];
        let said = said.into_iter().flat_map(|method| self.reported(method));
        let mut opened = Opened {
            dom,
            console: said.map(Value::to_string).collect(),
            requests: asked.collect(),
        };
        // Closes it, so that the next one is read also if it is the same file.
        self.load("about:blank");
        opened.requests.append(&mut asked_of(&self.proxy));
        opened
    }

    fn reported<'e>(&'e self, method: &'static str) -> impl Iterator<Item = &'e Value> {
        let events = self.events.iter();
        events.filter(move |event| event["method"] == method)
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
