//! Links between pages: each leads to a file of the repository, and to a heading that is there.
//!
//! Links to the outside are not followed: a page must not fail because a site is down.

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use super::tree::{Finding, Tree, folder, resolve};

/// A link of a page.
struct Link {
    line: usize,
    target: String,
}

/// Every relative link leads somewhere.
pub(super) fn dead(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for page in tree.markdown() {
        for link in relative_links(&page.text) {
            if let Some(complaint) = complaint(tree, &page.path, &link.target) {
                let message = format!("{}: {complaint}", link.target);
                findings.push(Finding::new(&page.path, link.line, message));
            }
        }
    }
    findings
}

/// Whether some page links to `page`.
pub(super) fn lead_to(tree: &Tree, page: &str) -> bool {
    tree.markdown().filter(|from| from.path != page).any(|from| {
        relative_links(&from.text).iter().any(|link| {
            let path = link.target.split('#').next().unwrap_or_default();
            resolve(folder(&from.path), path).as_deref() == Some(page)
        })
    })
}

fn relative_links(text: &str) -> Vec<Link> {
    let mut links = Vec::new();
    for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
        let (Event::Start(Tag::Link { dest_url, .. }) | Event::Start(Tag::Image { dest_url, .. })) =
            event
        else {
            continue;
        };
        // `::` names an item of the documentation, which rustdoc checks.
        let outside = dest_url.contains(':') || dest_url.is_empty();
        if !outside {
            let line = text[..range.start].matches('\n').count() + 1;
            links.push(Link { line, target: dest_url.into_string() });
        }
    }
    links
}

/// What is wrong about a link to `target` on the page at `from`.
fn complaint(tree: &Tree, from: &str, target: &str) -> Option<String> {
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let Some(path) =
        (if path.is_empty() { Some(from.to_owned()) } else { resolve(folder(from), path) })
    else {
        return Some("leads out of the repository".to_owned());
    };
    let as_folder = format!("{path}/");
    let there = tree.paths.contains(&path)
        || path.is_empty()
        || tree.paths.iter().any(|known| known.starts_with(&as_folder));
    if !there {
        return Some("there is no such file".to_owned());
    }
    let page = tree.get(&path).filter(|_| path.ends_with(".md") && !anchor.is_empty())?;
    let known = anchors(&page.text).iter().any(|known| known == anchor);
    (!known).then(|| "there is no such heading".to_owned())
}

/// The anchors of a page's headings, as hosting sites make them.
fn anchors(text: &str) -> Vec<String> {
    let mut anchors: Vec<String> = Vec::new();
    let mut heading: Option<String> = None;
    for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::Text(part) | Event::Code(part) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&part);
                }
            }
            Event::End(TagEnd::Heading(_)) => {
                let slug = slug(&heading.take().unwrap_or_default());
                let same = anchors.iter().filter(|known| **known == slug).count();
                anchors.push(if same == 0 { slug } else { format!("{slug}-{same}") });
            }
            _ => {}
        }
    }
    anchors
}

fn slug(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::places;

    fn dead_on(page: &str) -> Vec<String> {
        let other = ("docs/other.md", "# The `word!` macro\n\n## Twice\n\n## Twice\n");
        places(dead, &[("docs/page.md", page), other, ("a/b.rs", "")])
    }

    #[test]
    fn links_that_lead_somewhere_pass() {
        let page = "# Here\n[a](other.md) [b](../a/b.rs) [c](../a) [d](#here) [e](..)\n\
            [f](other.md#the-word-macro) [g](other.md#twice-1) [h](https://no.where/x.md)\n\
            [i](crate::Verb) [`Verb`]\n\n```text\n[j](code.md)\n```\n";
        assert_eq!(dead_on(page), [""; 0]);
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let page = "[a](gone.md)\n\n[b](other.md#gone)\n\n[c](#gone)\n\n[d](../../x.md)\n\n\
            ![e](gone.svg)\n\n[f]\n\n[f]: gone.md\n";
        let lines = [1, 3, 5, 7, 9, 11].map(|line| format!("docs/page.md:{line}"));
        assert_eq!(dead_on(page), lines);
    }
}
