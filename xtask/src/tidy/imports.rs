//! Which file of a crate imports which, read from its syntax.
//!
//! A file imports the file that *brings a name into the crate*: the one that defines it, or that
//! re-exports it from another crate. A re-export of the crate's own counts as an import of what it
//! re-exports, for the parent that says `pub use child::Name` and for each file that takes `Name`
//! from the parent. A `mod` alone imports nothing, so a parent may take from its children, as long
//! as they take nothing that the parent's own file defines.
//!
//! What exists for tests only is left out. Calls of methods are not seen: they have no path.

use std::collections::BTreeMap;

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{ImplItemFn, Item, ItemFn, ItemImpl, ItemMod, ItemUse, Macro, MetaList, UseTree};

use super::targets::{self, for_tests};
use super::tree::{Tree, folder};

/// Names followed through re-exports at most; a chain of them is never as long.
const RE_EXPORTS_MAX: usize = 16;

/// The imports of one file: each file that it imports, with the line that first does.
pub(super) type Imports<'a> = BTreeMap<&'a str, usize>;

/// The imports of each file of the crate whose root is the file at `root`.
pub(super) fn of_crate<'a>(tree: &'a Tree, root: &str) -> BTreeMap<&'a str, Imports<'a>> {
    let mut modules = Modules { all: Vec::new() };
    if let Some(file) = tree.get(root)
        && let Some(syntax) = &file.syntax
    {
        modules.add(tree, &file.path, &syntax.items, targets::below(&file.path, true), None);
    }
    let mut imports: BTreeMap<&str, Imports<'_>> = BTreeMap::new();
    for (index, module) in modules.all.iter().enumerate() {
        let mut collector = Collector { modules: &modules, at: index, found: Vec::new() };
        for item in module.syntax {
            collector.visit_item(item);
        }
        let of_file = imports.entry(module.file).or_default();
        for (file, line) in collector.found {
            if file != module.file {
                let first = of_file.entry(file).or_insert(line);
                *first = line.min(*first);
            }
        }
    }
    imports
}

/// A name that a `use` binds to the path that it stands for.
struct Binding {
    /// `None` for a glob.
    name: Option<String>,
    path: Vec<String>,
    line: usize,
}

/// A module: a file, or a part of one.
struct Module<'a> {
    file: &'a str,
    syntax: &'a [Item],
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    /// What it defines, and in which file: a macro for everyone is the root's by name.
    items: BTreeMap<String, &'a str>,
    bindings: Vec<Binding>,
}

/// What a path leads to.
#[derive(Clone, Copy)]
enum Place<'a> {
    Module(usize),
    /// An item that this file brings into the crate.
    Item(&'a str),
    /// Something of another crate.
    Outside,
}

/// The modules of one crate; the first is its root.
struct Modules<'a> {
    all: Vec<Module<'a>>,
}

impl<'a> Modules<'a> {
    /// Adds a module and those that it declares; the files of these lie `below`.
    fn add(
        &mut self,
        tree: &'a Tree,
        file: &'a str,
        syntax: &'a [Item],
        below: &str,
        parent: Option<usize>,
    ) -> usize {
        let index = self.all.len();
        let (children, bindings) = (BTreeMap::new(), Vec::new());
        let items = BTreeMap::new();
        self.all.push(Module { file, syntax, parent, children, items, bindings });
        for item in syntax {
            self.add_item(tree, index, item, below);
        }
        index
    }

    fn add_item(&mut self, tree: &'a Tree, index: usize, item: &'a Item, below: &str) {
        let file = self.all[index].file;
        match item {
            Item::Mod(module) if !for_tests(&module.attrs) => {
                let name = module.ident.to_string();
                if let Some((_, inner)) = &module.content {
                    let below = format!("{below}/{name}");
                    let child = self.add(tree, file, inner, &below, Some(index));
                    self.all[index].children.insert(name, child);
                    return;
                }
                let candidates = targets::modules(std::slice::from_ref(item), folder(file), below);
                let found = candidates.iter().find_map(|path| tree.get(path));
                if let Some(found) = found
                    && let Some(syntax) = &found.syntax
                {
                    let below = targets::below(&found.path, false);
                    let child = self.add(tree, &found.path, &syntax.items, below, Some(index));
                    self.all[index].children.insert(name, child);
                }
            }
            Item::Use(item) if !for_tests(&item.attrs) => {
                self.all[index].bindings.extend(bindings(item));
            }
            Item::Macro(item) => {
                let Some(name) = &item.ident else { return };
                let exported = item.attrs.iter().any(|a| a.path().is_ident("macro_export"));
                let owner = if exported { 0 } else { index };
                self.all[owner].items.insert(name.to_string(), file);
            }
            item => {
                if let Some(name) = defined(item) {
                    self.all[index].items.insert(name, file);
                }
            }
        }
    }

    /// What `path` leads to, read in the module `at`; `None` if it begins with no known name.
    fn resolve(&self, at: usize, path: &[String], depth: usize) -> Option<Place<'a>> {
        let (first, mut rest) = path.split_first()?;
        let mut place = match first.as_str() {
            "crate" => Place::Module(0),
            "self" => Place::Module(at),
            "super" => Place::Module(self.all[at].parent?),
            name => self.lookup(at, name, rest.is_empty(), depth)?,
        };
        while let (Place::Module(module), Some((name, more))) = (place, rest.split_first()) {
            place = match name.as_str() {
                "super" => Place::Module(self.all[module].parent?),
                "self" => place,
                // A name that a macro defines stands in the file that calls the macro.
                name => self
                    .lookup(module, name, more.is_empty(), depth)
                    .unwrap_or(Place::Item(self.all[module].file)),
            };
            if matches!(place, Place::Outside) {
                place = Place::Item(self.all[module].file);
            }
            rest = more;
        }
        Some(place)
    }

    /// What `name` means in a module. Only the last name of a path may be an item's rather than a
    /// module's of the same name.
    fn lookup(&self, at: usize, name: &str, last: bool, depth: usize) -> Option<Place<'a>> {
        let module = &self.all[at];
        let item = module.items.get(name).map(|file| Place::Item(file));
        let child = module.children.get(name).map(|child| Place::Module(*child));
        let own = if last { item.or(child) } else { child.or(item) };
        if own.is_some() || depth == RE_EXPORTS_MAX {
            return own;
        }
        let named = module.bindings.iter().find(|b| b.name.as_deref() == Some(name));
        if let Some(binding) = named {
            return Some(self.target(at, binding, depth));
        }
        let globs = module.bindings.iter().filter(|binding| binding.name.is_none());
        globs.into_iter().find_map(|glob| match self.target(at, glob, depth) {
            Place::Module(module) => self.lookup(module, name, last, depth + 1),
            Place::Item(_) | Place::Outside => None,
        })
    }

    /// What a binding of the module `at` stands for.
    fn target(&self, at: usize, binding: &Binding, depth: usize) -> Place<'a> {
        let itself = binding.path.len() == 1 && binding.path.first() == binding.name.as_ref();
        if itself {
            return Place::Outside;
        }
        self.resolve(at, &binding.path, depth + 1).unwrap_or(Place::Outside)
    }
}

/// The name that an item defines.
fn defined(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::TraitAlias(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

/// What a `use` binds.
fn bindings(item: &ItemUse) -> Vec<Binding> {
    let mut bindings = Vec::new();
    spread(&item.tree, &mut Vec::new(), &mut bindings);
    bindings
}

fn spread(tree: &UseTree, path: &mut Vec<String>, bindings: &mut Vec<Binding>) {
    let (name, last, line) = match tree {
        UseTree::Path(step) => {
            path.push(step.ident.to_string());
            spread(&step.tree, path, bindings);
            path.pop();
            return;
        }
        UseTree::Group(group) => {
            for tree in &group.items {
                spread(tree, path, bindings);
            }
            return;
        }
        UseTree::Name(name) => (Some(&name.ident), Some(&name.ident), name.ident.span()),
        UseTree::Rename(name) => (Some(&name.rename), Some(&name.ident), name.ident.span()),
        UseTree::Glob(glob) => (None, None, glob.star_token.spans[0]),
    };
    let mut full = path.clone();
    full.extend(last.map(ToString::to_string).filter(|last| last != "self"));
    let name = match name.map(ToString::to_string) {
        Some(name) if name == "self" => full.last().cloned(),
        name => name,
    };
    bindings.push(Binding { name, path: full, line: line.start().line });
}

/// Collects the files to which the paths of a module lead.
struct Collector<'m, 'a> {
    modules: &'m Modules<'a>,
    at: usize,
    found: Vec<(&'a str, usize)>,
}

impl Collector<'_, '_> {
    fn path(&mut self, path: &[String], line: usize) {
        if let Some(Place::Item(file)) = self.modules.resolve(self.at, path, 0) {
            self.found.push((file, line));
        }
    }

    /// The paths among tokens whose syntax only a macro knows.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path = Vec::new();
        let (mut line, mut colons) = (0, 0);
        for token in tokens {
            match &token {
                TokenTree::Punct(punct) if punct.as_char() == ':' && !path.is_empty() => {
                    colons += 1;
                    continue;
                }
                TokenTree::Ident(name) => {
                    if colons != 2 {
                        self.end_of_path(&mut path, line);
                        line = name.span().start().line;
                    }
                    path.push(name.to_string());
                }
                TokenTree::Group(group) => {
                    self.end_of_path(&mut path, line);
                    self.tokens(group.stream());
                }
                _ => self.end_of_path(&mut path, line),
            }
            colons = 0;
        }
        self.end_of_path(&mut path, line);
    }

    fn end_of_path(&mut self, path: &mut Vec<String>, line: usize) {
        if path.len() > 1 {
            self.path(path, line);
        }
        path.clear();
    }
}

/// Visits those of these that exist not for tests only.
macro_rules! skip_tests {
    ($($visit:ident: $item:ty),+) => {
        $(fn $visit(&mut self, item: &'ast $item) {
            if !for_tests(&item.attrs) {
                visit::$visit(self, item);
            }
        })+
    };
}

impl<'ast> Visit<'ast> for Collector<'_, '_> {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.segments.len() > 1 && path.leading_colon.is_none() {
            let line = path.segments[0].ident.span().start().line;
            let names: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
            self.path(&names, line);
        }
        visit::visit_path(self, path);
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if for_tests(&item.attrs) || item.leading_colon.is_some() {
            return;
        }
        for binding in bindings(item) {
            match self.modules.resolve(self.at, &binding.path, 0) {
                Some(Place::Item(file)) => self.found.push((file, binding.line)),
                Some(Place::Module(module)) if binding.name.is_none() => {
                    self.found.push((self.modules.all[module].file, binding.line));
                }
                _ => {}
            }
        }
    }

    fn visit_macro(&mut self, mac: &'ast Macro) {
        self.visit_path(&mac.path);
        self.tokens(mac.tokens.clone());
    }

    fn visit_meta_list(&mut self, list: &'ast MetaList) {
        self.tokens(list.tokens.clone());
    }

    /// A module is visited for itself.
    fn visit_item_mod(&mut self, _: &'ast ItemMod) {}

    skip_tests!(visit_item_fn: ItemFn, visit_item_impl: ItemImpl, visit_impl_item_fn: ImplItemFn);
}
