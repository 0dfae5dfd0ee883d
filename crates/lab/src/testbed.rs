//! Testbeds: the machines of a publication as data, each number with its source.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use farlock_sim::{Machines, Nic};
use serde::Deserialize;

/// Every testbed, by its name.
const TESTBEDS: &[(&str, &str)] = &[
    ("cider", include_str!("../testbeds/cider.toml")),
    ("cider-transactions", include_str!("../testbeds/cider-transactions.toml")),
    ("cider-transactions-quick", include_str!("../testbeds/cider-transactions-quick.toml")),
    ("citron", include_str!("../testbeds/citron.toml")),
];

/// A number and where it comes from.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sourced {
    value: u64,
    source: String,
}

type Numbers = BTreeMap<String, Sourced>;

/// The machines of a publication.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Testbed {
    /// Of the NIC of the memory node, by the names of [`Nic`].
    #[serde(default)]
    nic: Numbers,
    /// Of the machines of clients: `each` on one, `verb_ns`; `nodes`, if the first so many have
    /// memory too.
    #[serde(default)]
    clients: Numbers,
    /// Of the processor of a server: options of every server.
    #[serde(default)]
    server: Numbers,
    /// Of its structures: options of the lock of that name.
    #[serde(default)]
    structures: BTreeMap<String, Numbers>,
}

impl Testbed {
    /// The testbed of this name, or in this file, whose name ends so: `.toml`.
    ///
    /// # Errors
    /// There is none, or it does not say what it must.
    pub fn named(name: &str) -> anyhow::Result<Self> {
        let text = match TESTBEDS.iter().find(|(known, _)| *known == name) {
            Some((_, text)) => (*text).to_owned(),
            None if name.ends_with(".toml") => {
                std::fs::read_to_string(name).with_context(|| format!("testbed '{name}'"))?
            }
            None => bail!("there is no testbed named '{name}'"),
        };
        let testbed: Self = toml::from_str(&text).with_context(|| format!("testbed '{name}'"))?;
        testbed.nic()?;
        testbed.machines()?;
        Ok(testbed)
    }

    /// Its NIC.
    ///
    /// # Errors
    /// A number has no name of a NIC's, or is too large.
    pub fn nic(&self) -> anyhow::Result<Nic> {
        let mut nic = Nic::default();
        for (name, Sourced { value, .. }) in &self.nic {
            let number = u32::try_from(*value).with_context(|| name.clone())?;
            match name.as_str() {
                "rtt8_ns" => nic.rtt8_ns = number,
                "rtt16_ns" => nic.rtt16_ns = number,
                "read_rtt_ns" => nic.read_rtt_ns = number,
                "atomic_issue_ns" => nic.atomic_issue_ns = number,
                "read_issue_ns" => nic.read_issue_ns = number,
                "line_issue_ns" => nic.line_issue_ns = number,
                "window" => nic.window = u16::try_from(number)?,
                "line8_ns" => nic.line8_ns = number,
                "line16_ns" => nic.line16_ns = number,
                "message_ns" => nic.message_ns = number,
                "message_rtt_ns" => nic.message_rtt_ns = number,
                _ => bail!("a NIC has no '{name}'"),
            }
        }
        Ok(nic)
    }

    /// The machines of its clients, if it says anything of them.
    ///
    /// # Errors
    /// It says something else of them.
    pub fn machines(&self) -> anyhow::Result<Option<Machines>> {
        if self.clients.is_empty() {
            return Ok(None);
        }
        let of = |name: &str| self.clients.get(name).with_context(|| format!("clients: {name}?"));
        let endpoints_each = u16::try_from(of("each")?.value)?;
        let verb_ns = u32::try_from(of("verb_ns")?.value)?;
        let have_nodes = self.clients.contains_key("nodes");
        Ok(Some(Machines { endpoints_each, verb_ns, have_nodes }))
    }

    /// How many memory nodes there are, if clients share their machines.
    pub fn nodes(&self) -> Option<u16> {
        u16::try_from(self.client("nodes")?).ok()
    }

    /// What it says of every client.
    pub fn client(&self, name: &str) -> Option<u64> {
        self.clients.get(name).map(|number| number.value)
    }

    /// What it says of every server.
    pub fn server(&self, name: &str) -> Option<u64> {
        self.server.get(name).map(|number| number.value)
    }

    /// The name of a lock with what its server takes here. Options that the name has already count
    /// more.
    pub fn equipped(&self, spec: &str) -> String {
        let (name, options) = spec.split_once(':').unwrap_or((spec, ""));
        let Some(structure) = self.structures.get(name) else { return spec.to_owned() };
        let own = self.server.iter().chain(structure);
        let own = own.map(|(option, number)| format!("{option}={}", number.value));
        let all: Vec<String> = std::iter::once(name.to_owned()).chain(own).collect();
        [all.join(":").as_str(), options].join(":").trim_end_matches(':').to_owned()
    }

    /// Every number with its name and its source, for people to judge.
    pub fn sources(&self) -> impl Iterator<Item = (String, u64, &str)> {
        let structures = self.structures.iter().map(|(name, of)| (name.as_str(), of));
        let all = [("nic", &self.nic), ("clients", &self.clients), ("server", &self.server)];
        all.into_iter().chain(structures).flat_map(|(group, numbers)| {
            let number = move |(name, number): (&String, &'_ Sourced)| {
                (format!("{group}.{name}"), number.value)
            };
            numbers.iter().map(move |entry| {
                let (name, value) = number(entry);
                (name, value, entry.1.source.as_str())
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use farlock_locks::registry;

    use super::*;

    #[test]
    fn every_testbed_says_where_its_numbers_come_from() {
        for (name, _) in TESTBEDS {
            let testbed = Testbed::named(name).unwrap();
            for (number, _, source) in testbed.sources() {
                assert!(source.len() > 10, "{number} of {name}: '{source}'");
            }
            for structure in testbed.structures.keys() {
                let equipped = testbed.equipped(structure);
                registry::kind(&equipped).unwrap_or_else(|error| panic!("{equipped}: {error}"));
            }
        }
    }

    #[test]
    fn what_a_name_says_counts_more() {
        let testbed = Testbed::named("citron").unwrap();
        assert_eq!(testbed.equipped("citron:k=1"), "citron:k=1");
        assert!(testbed.equipped("linked-list:cores=2").ends_with(":cores=2"));
        assert!(testbed.equipped("linked-list:cores=2").contains(":message="));
    }
}
