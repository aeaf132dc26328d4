//! Reports as one self-contained HTML page: no script, no other file, light and dark, for a phone
//! and for a printer.
//!
//! Used by `drill --report` and `lab --report`. Invariant: every text is escaped; pictures are
//! inline SVG, as their makers drew them.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The name of the page in its folder.
const PAGE_FILE: &str = "index.html";

const PAGE_STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1b1f24;--back:#fff;--soft:#57606a;--line:#d0d7de;\
--good:#1a7f37;--bad:#cf222e;--bar:#0969da;--band:#f6f8fa}
@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--back:#0d1117;--soft:#9198a1;\
--line:#3d444d;--good:#3fb950;--bad:#f85149;--bar:#4493f8;--band:#151b23}}
*{box-sizing:border-box}
body{margin:0 auto;padding:1rem;max-width:62rem;font:16px/1.5 system-ui,sans-serif;\
color:var(--ink);background:var(--back)}
h1{font-size:1.6rem;margin:.5rem 0}h2{font-size:1.2rem;margin:2rem 0 .5rem}
p,figcaption{margin:.4rem 0}.soft{color:var(--soft)}
.verdict{font-weight:600}.good{color:var(--good)}.bad{color:var(--bad)}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.9rem;min-width:100%}
caption{text-align:left;font-weight:600;padding:.4rem 0}
th,td{padding:.25rem .6rem;border-bottom:1px solid var(--line);text-align:right}
th{background:var(--band)}th:first-child,td:first-child,td.words{text-align:left}
figure{margin:1rem 0}figure svg{width:100%;height:auto;max-width:60rem}
code{background:var(--band);padding:.1rem .3rem;overflow-wrap:anywhere}
svg text{fill:currentColor}
@media print{body{max-width:none;font-size:11pt}h2{break-after:avoid}\
figure,tr{break-inside:avoid}.scroll{overflow:visible}}
";

/// A page under way.
pub(crate) struct HtmlPage {
    body: String,
    title: String,
}

/// A text safe within an element or a quoted attribute.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() && c != '\n' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

impl HtmlPage {
    /// A page with its title, the question that it answers, and the verdict.
    pub(crate) fn new(title: &str, question: &str, (passed, verdict): (bool, &str)) -> Self {
        let class = if passed { "good" } else { "bad" };
        let body = format!(
            "<h1>{}</h1>\n<p>{}</p>\n<p class=\"verdict {class}\">{}</p>\n",
            escaped(title),
            escaped(question),
            escaped(verdict)
        );
        Self { body, title: title.to_owned() }
    }

    pub(crate) fn heading(&mut self, text: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.body, "<h2>{}</h2>", escaped(text));
    }

    pub(crate) fn note(&mut self, text: &str) {
        if !text.is_empty() {
            let _ = writeln!(self.body, "<p class=\"soft\">{}</p>", escaped(text));
        }
    }

    /// What to type for the same.
    pub(crate) fn command(&mut self, text: &str) {
        let _ = writeln!(self.body, "<p><code>{}</code></p>", escaped(text));
    }

    /// A table; cells of words are on the left, numbers on the right.
    pub(crate) fn table<T: AsRef<str>>(
        &mut self,
        title: &str,
        columns: &[T],
        rows: &[Vec<String>],
    ) {
        let cell = |tag: &str, text: &str| {
            let is_number = text.chars().next().is_none_or(|c| c.is_ascii_digit() || c == '-');
            let class = if is_number || tag == "th" { "" } else { " class=\"words\"" };
            format!("<{tag}{class}>{}</{tag}>", escaped(text))
        };
        self.body.push_str("<div class=\"scroll\"><table>");
        if !title.is_empty() {
            let _ = write!(self.body, "<caption>{}</caption>", escaped(title));
        }
        let head: String = columns.iter().map(|column| cell("th", column.as_ref())).collect();
        let _ = writeln!(self.body, "<thead><tr>{head}</tr></thead><tbody>");
        for row in rows {
            let cells: String = row.iter().map(|text| cell("td", text)).collect();
            let _ = writeln!(self.body, "<tr>{cells}</tr>");
        }
        self.body.push_str("</tbody></table></div>\n");
    }

    /// A picture as its maker drew it.
    pub(crate) fn picture(&mut self, svg: &str, caption: &str) {
        let start = svg.find("<svg").unwrap_or(0);
        let svg = svg.get(start..).unwrap_or_default();
        let caption = escaped(caption);
        let _ = writeln!(
            self.body,
            "<figure>{svg}<figcaption class=\"soft\">{caption}</figcaption></figure>"
        );
    }

    /// Bars from 0 to 1 with a label each, and a line at the floor.
    pub(crate) fn bars(&mut self, caption: &str, bars: &[(String, f64)], floor: f64) {
        const ROW: usize = 26;
        const LEFT: f64 = 250.0;
        const WIDTH: f64 = 400.0;
        let height = bars.len() * ROW + 24;
        let mut svg = format!(
            "<svg viewBox=\"0 0 720 {height}\" role=\"img\" aria-label=\"{}\" font-size=\"13\">",
            escaped(caption)
        );
        for (at, (label, value)) in bars.iter().enumerate() {
            let y = at * ROW + 4;
            let width = value.clamp(0.0, 1.0) * WIDTH;
            let fill = if *value >= floor { "var(--bar)" } else { "var(--bad)" };
            let _ = write!(
                svg,
                "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text><rect x=\"{LEFT}\" y=\"{y}\" \
                 width=\"{width:.1}\" height=\"18\" fill=\"{fill}\"/><text x=\"{:.1}\" \
                 y=\"{}\">{:.1} %</text>",
                LEFT - 8.0,
                y + 14,
                escaped(label),
                LEFT + width + 6.0,
                y + 14,
                value * 100.0
            );
        }
        let (x, end) = (LEFT + floor * WIDTH, height - 20);
        let _ = write!(
            svg,
            "<line x1=\"{x}\" x2=\"{x}\" y1=\"0\" y2=\"{end}\" stroke=\"currentColor\" \
             stroke-dasharray=\"4 3\"/><text x=\"{x}\" y=\"{}\" text-anchor=\"middle\">{:.0} % \
             floor</text></svg>",
            height - 6,
            floor * 100.0
        );
        self.picture(&svg, caption);
    }

    /// The whole document.
    pub(crate) fn text(&self) -> String {
        format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n\
             <link rel=\"icon\" href=\"data:,\">\n<title>{}</title>\n\
             <style>\n{PAGE_STYLE}</style>\n</head><body>\n{}</body></html>\n",
            escaped(&self.title),
            self.body
        )
    }

    /// Writes the page into a folder, which is made where it is missing; returns its path.
    pub(crate) fn write(&self, folder: &Path) -> io::Result<PathBuf> {
        fs::create_dir_all(folder)?;
        let path = folder.join(PAGE_FILE);
        fs::write(&path, self.text())?;
        Ok(path)
    }
}

/// This machine and program in a line, with the commit where it is known.
pub(crate) fn machine() -> String {
    #[cfg(feature = "lab")]
    {
        let it = floodwall_lab::Machine::here();
        format!(
            "{}, commit {} ({}), {}, {} cores, {}",
            it.date, it.commit, it.build, it.cpu, it.cores, it.system
        )
    }
    #[cfg(not(feature = "lab"))]
    {
        format!("floodwall {}", env!("CARGO_PKG_VERSION"))
    }
}

/// The command line as it was given, quoted where it must be.
pub(crate) fn command_line() -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,".contains(c);
    let word = |word: String| match !word.is_empty() && word.chars().all(plain) {
        true => word,
        false => format!("'{}'", word.replace('\'', "'\\''")),
    };
    let words = std::env::args_os().skip(1).map(|arg| word(arg.to_string_lossy().into_owned()));
    let all: Vec<_> = std::iter::once("floodwall".to_owned()).chain(words).collect();
    all.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_is_escaped_and_bars_are_within_their_picture() {
        let mut page = HtmlPage::new("<a>&\"b\"", "a < b?", (false, "FAIL\u{1b}"));
        page.table("t<", &["<c>", "n"], &[vec!["<x>".to_owned(), "12".to_owned()]]);
        page.bars("shares", &[("<v4>".to_owned(), 7.0), ("v6".to_owned(), 0.2)], 0.99);
        page.command("floodwall '<'");
        let text = page.text();
        assert!(!text.contains("<a>") && !text.contains("<c>") && !text.contains("<x>"), "{text}");
        assert!(!text.contains("<v4>") && !text.contains('\u{1b}'));
        assert!(text.contains("width=\"400.0\"") && text.contains("width=\"80.0\""), "{text}");
        assert!(!text.contains("<script") && !text.contains("http"), "self-contained");
    }
}
