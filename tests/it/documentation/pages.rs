//! Pages of Markdown: their links, headings and shell blocks.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Where pages are, beside those at the top.
const DIRECTORIES: [&str; 4] = ["docs", "dashboards", "deploy", "examples"];

/// A page, by its path from the top of the repository.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) name: String,
    text: String,
}

fn top() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All of them, in the order of their names.
pub(super) fn pages() -> Vec<Page> {
    let mut files = Vec::new();
    find(top(), false, &mut files);
    for directory in DIRECTORIES {
        find(&top().join(directory), true, &mut files);
    }
    files.sort();
    let name = |path: &Path| {
        path.strip_prefix(top()).expect("found below it").to_str().expect("plain").to_owned()
    };
    let read = |path: &Path| fs::read_to_string(path).expect("it is there");
    let pages: Vec<Page> =
        files.iter().map(|path| Page { name: name(path), text: read(path) }).collect();
    assert!(pages.len() > 30, "{pages:?}");
    pages
}

fn find(directory: &Path, below: bool, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for path in entries.map(|entry| entry.expect("readable").path()) {
        // What a link leads to is found where it is.
        if path.is_symlink() {
            continue;
        }
        if path.is_dir() && below {
            find(&path, below, found);
        } else if path.extension().is_some_and(|ending| ending == "md") {
            found.push(path);
        }
    }
}

impl Page {
    /// Lines outside code blocks.
    fn prose(&self) -> impl Iterator<Item = &str> {
        let mut in_code = false;
        self.text.lines().filter(move |line| {
            let is_fence = line.trim_start().starts_with("```");
            in_code ^= is_fence;
            !in_code && !is_fence
        })
    }

    /// Where its links lead, those to other sites left out.
    pub(super) fn links(&self) -> Vec<String> {
        let text = self.prose().collect::<Vec<_>>().join("\n");
        let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        let is_inside = |link: &&str| !link.contains("://");
        links.filter(is_inside).map(str::to_owned).collect()
    }

    /// The file that a link leads to, from the top.
    pub(super) fn target(&self, link: &str) -> Option<String> {
        let file = link.split('#').next().unwrap_or_default();
        if file.is_empty() {
            return Some(self.name.clone());
        }
        let mut path = PathBuf::from(&self.name);
        path.pop();
        for part in Path::new(file).components() {
            match part {
                Component::ParentDir if path.pop() => {}
                Component::ParentDir => return None,
                Component::Normal(name) => path.push(name),
                _ => {}
            }
        }
        path.to_str().map(str::to_owned)
    }

    /// What is wrong with a link.
    pub(super) fn is_broken(&self, link: &str) -> Option<String> {
        let Some(target) = self.target(link) else { return Some("leads out".to_owned()) };
        let path = top().join(&target);
        if !path.exists() {
            return Some(format!("there is no {target}"));
        }
        let (_, anchor) = link.split_once('#')?;
        let page = Page { text: fs::read_to_string(path).ok()?, name: target };
        (!page.anchors().contains(anchor)).then(|| format!("{} has no such heading", page.name))
    }

    /// The anchors of its headings, as GitHub makes them.
    fn anchors(&self) -> BTreeSet<String> {
        let headings = self.prose().filter(|line| line.starts_with('#'));
        let slug = |heading: &str| -> String {
            let title = heading.trim_start_matches('#').trim().to_lowercase();
            let kept =
                title.chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
            kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
        };
        headings.map(slug).collect()
    }

    /// Its blocks of a language other than the shell's.
    pub(super) fn blocks(&self, language: &str) -> Vec<String> {
        let opening = format!("```{language}\n");
        let blocks = self.text.split(&opening).skip(1);
        blocks.filter_map(|rest| Some(rest.split("```").next()?.to_owned())).collect()
    }

    /// Its shell blocks, each with the JSON that is shown right after it.
    pub(super) fn shell(&self) -> Vec<(String, Option<String>)> {
        let until_end = |text: &str| text.split("```").next().unwrap_or_default().to_owned();
        let blocks = self.text.split("```sh\n").skip(1);
        blocks
            .map(|rest| {
                let block = until_end(rest);
                let after = rest[block.len()..].trim_start_matches('`').trim_start();
                (block, after.strip_prefix("```json\n").map(until_end))
            })
            .collect()
    }
}
