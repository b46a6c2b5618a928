//! What the reader sees: lines of at most 80 columns, coloured only on a terminal that wants it.

use std::io::{self, IsTerminal, Write};

use crate::clock::{Boottime, Clock};

const WIDTH: usize = 80;
/// Of text under a heading.
const INDENT: &str = "  ";
/// Of answers and commands.
const QUOTE: &str = "    ";

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Faint,
    Strong,
    Good,
    Bad,
}

pub(super) struct Page {
    out: io::Stdout,
    is_coloured: bool,
    clock: Clock,
    began: Boottime,
}

impl Page {
    pub(super) fn new(clock: Clock) -> Page {
        let out = io::stdout();
        // See https://no-color.org.
        let is_unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let is_coloured = out.is_terminal() && !is_unwanted && !is_dumb;
        Page { out, is_coloured, clock, began: clock.now() }
    }

    pub(super) fn heading(&mut self, text: &str) -> io::Result<()> {
        self.line(&[(Tone::Strong, text)])?;
        self.gap()
    }

    /// A paragraph.
    pub(super) fn text(&mut self, text: &str) -> io::Result<()> {
        for line in wrapped(text, WIDTH - INDENT.len()) {
            self.line(&[(Tone::Plain, INDENT), (Tone::Plain, &line)])?;
        }
        self.gap()
    }

    /// A step of the story, with the seconds since the beginning.
    pub(super) fn step(&mut self, text: &str) -> io::Result<()> {
        self.timed(text, Tone::Plain)
    }

    /// The step that the others lead to.
    pub(super) fn last_step(&mut self, text: &str, tone: Tone) -> io::Result<()> {
        self.timed(text, tone)?;
        self.gap()
    }

    fn timed(&mut self, text: &str, tone: Tone) -> io::Result<()> {
        let elapsed = self.clock.now().since(self.began).as_secs_f64();
        self.labelled(&format!("{INDENT}{elapsed:>6.2} s  "), Tone::Faint, text, tone)
    }

    /// A line with `ok` or `FAILED` before it.
    pub(super) fn verdict(&mut self, is_true: bool, text: &str) -> io::Result<()> {
        let (label, tone) = if is_true { ("ok", Tone::Good) } else { ("FAILED", Tone::Bad) };
        self.labelled(&format!("{INDENT}{label:<8}"), tone, text, Tone::Plain)
    }

    /// Lines as they are, such as an answer. One that is too long is broken, and goes
    /// on further to the right.
    pub(super) fn quote(&mut self, text: &str) -> io::Result<()> {
        self.indented(text, Tone::Plain)
    }

    /// Lines to be pasted into a shell.
    pub(super) fn command(&mut self, text: &str) -> io::Result<()> {
        self.indented(text, Tone::Strong)
    }

    fn indented(&mut self, text: &str, tone: Tone) -> io::Result<()> {
        for line in text.lines() {
            if line.is_empty() {
                self.gap()?;
                continue;
            }
            let margin: String = line.chars().take_while(|c| *c == ' ').collect();
            let label = format!("{QUOTE}{margin}");
            self.labelled(&label, Tone::Plain, line.trim_start(), tone)?;
        }
        self.gap()
    }

    /// An empty line.
    pub(super) fn gap(&mut self) -> io::Result<()> {
        writeln!(self.out)
    }

    /// Text after a label; further lines of the text begin under the first.
    fn labelled(
        &mut self,
        label: &str,
        label_tone: Tone,
        text: &str,
        tone: Tone,
    ) -> io::Result<()> {
        let blank = " ".repeat(label.len());
        for (number, line) in wrapped(text, WIDTH - label.len()).iter().enumerate() {
            let label = if number == 0 { label } else { &blank };
            self.line(&[(label_tone, label), (tone, line)])?;
        }
        Ok(())
    }

    fn line(&mut self, parts: &[(Tone, &str)]) -> io::Result<()> {
        for (tone, text) in parts {
            match tone.code().filter(|_| self.is_coloured) {
                Some(code) => write!(self.out, "\x1b[{code}m{text}\x1b[0m")?,
                None => write!(self.out, "{text}")?,
            }
        }
        writeln!(self.out)
    }
}

impl Tone {
    /// Of ECMA-48's "select graphic rendition".
    const fn code(self) -> Option<&'static str> {
        match self {
            Tone::Plain => None,
            Tone::Faint => Some("2"),
            Tone::Strong => Some("1"),
            Tone::Good => Some("32"),
            Tone::Bad => Some("31"),
        }
    }
}

/// Breaks between words, and within a word only if it is longer than a line.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut column = 0;
    for word in text.split(' ') {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > width {
            lines.push(String::new());
            column = 0;
        } else if column > 0 {
            lines.last_mut().expect("never empty").push(' ');
            column += 1;
        }
        for letter in word.chars() {
            if column == width {
                lines.push(String::new());
                column = 0;
            }
            lines.last_mut().expect("never empty").push(letter);
            column += 1;
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::wrapped;

    #[test]
    fn lines_break_between_words_and_long_words_break_where_they_must() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("a 123456789 b", 4), ["a", "1234", "5678", "9 b"]);
        assert_eq!(wrapped("", 4), [""]);
        assert_eq!(wrapped("äöü äöü", 3), ["äöü", "äöü"]);
    }
}
