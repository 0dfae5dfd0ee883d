//! What is measured, as arguments of the command.

use clap::{Args, ValueEnum, value_parser};
use farlock_kv::sync::{CiderRules, CreditRules};
use serde::Serialize;

use super::turns::Plan;
use crate::workload::Dist;

/// The most records.
const RECORDS_MAX: u64 = 60_000_000;

/// Which index finds the keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum IndexKind {
    /// A slot for each key
    PointerArray,
    /// RACE's buckets
    Race,
    /// SMART's tree
    Smart,
}

/// How writers of one key keep out of each other's way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sync {
    /// Not at all: a late writer tries again
    Optimistic,
    /// Not at all: of overwrites that collide one is carried out, and the others count as done
    Absorbing,
    /// By a spin lock with backoff
    Cas,
    /// By a queue lock
    Mcs,
    /// By CIDER: a queue for hot keys, whose writes are combined
    Cider,
    /// By CIDER's choice between a queue and none, where nothing is combined
    CiderChoice,
    /// By CIDER's queue for all keys, whose writes are combined
    CiderCombining,
}

/// How the rivals of CIDER are built.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Setting {
    /// As we would: retries wait ever longer, backoff is exact, holders alone read keys
    Fair,
    /// As CIDER's artifact has them: retries at once, backoff by sleeping, keys are read before
    Artifact,
}

/// What clients do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mix {
    /// Write-intensive: half reads, half updates
    #[value(alias = "a")]
    Wi,
    /// Read-intensive: 95 % reads, 5 % updates
    #[value(alias = "b")]
    Ri,
    /// Write-only: values for keys, whether they exist or not
    #[value(alias = "write-only")]
    Wo,
    /// Reads
    C,
    /// 95 % scans of 1 to 100 records in order, 5 % insertions: of a tree alone
    E,
    /// Half reads, half additions to what was read
    F,
}

impl Mix {
    /// Reads in a hundred operations.
    pub(super) const fn reads(self) -> u8 {
        match self {
            Self::Wi | Self::F => 50,
            Self::Ri | Self::E => 95,
            Self::C => 100,
            Self::Wo => 0,
        }
    }
}

/// What to measure.
#[derive(Clone, Debug, Args)]
pub struct YcsbArgs {
    /// Which index finds the keys
    #[arg(long, value_enum, default_value = "pointer-array")]
    pub(super) index: IndexKind,
    /// How writers of one key keep out of each other's way
    #[arg(long, value_enum, default_value = "cider")]
    pub(super) sync: Sync,
    /// How CIDER's rivals are built
    #[arg(long, value_enum, default_value = "fair")]
    pub(super) setting: Setting,
    /// What clients do
    #[arg(long, value_enum, default_value = "wi")]
    pub(super) workload: Mix,
    /// Clients, each with one operation at a time
    #[arg(long, value_name = "N", default_value_t = 512)]
    #[arg(value_parser = value_parser!(u16).range(1..=2_000))]
    pub(super) clients: u16,
    /// Compute nodes that they share [default: one for four]
    #[arg(long, value_name = "N", value_parser = value_parser!(u16).range(1..=2_000))]
    pub(super) cns: Option<u16>,
    /// Records
    #[arg(long, value_name = "N", default_value_t = RECORDS_MAX)]
    #[arg(value_parser = value_parser!(u64).range(1..=RECORDS_MAX))]
    pub(super) records: u64,
    /// Operations that are measured
    #[arg(long, value_name = "N", default_value_t = 200_000)]
    #[arg(value_parser = value_parser!(u64).range(1..=100_000_000))]
    pub(super) operations: u64,
    /// Operations before these [default: half as many]
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(0..=100_000_000))]
    pub(super) warm_up: Option<u64>,
    /// Which of the records how often: uniform, or zipf:T
    #[arg(long, default_value = "zipf:0.99")]
    pub(super) dist: Dist,
    /// Bytes of a value
    #[arg(long, value_name = "N", default_value_t = 8)]
    #[arg(value_parser = value_parser!(u64).range(8..=4096))]
    pub(super) value_bytes: u64,
    /// Clients of one compute node do not combine their writes
    #[arg(long)]
    pub(super) no_local_combining: bool,
    /// Clients of one compute node read together what they read of one key at once
    #[arg(long)]
    pub(super) read_delegation: bool,
    /// Of CIDER: turns in line for a key that is found hot
    #[arg(long, value_name = "N", default_value_t = CreditRules::DEFAULT.initial)]
    pub(super) credit: u32,
    /// Of CIDER: so many misses, twice in a row, make a key hot
    #[arg(long, value_name = "N", default_value_t = CreditRules::DEFAULT.threshold)]
    pub(super) threshold: u32,
    /// Whose machines are simulated
    #[arg(long, default_value = "cider")]
    pub(super) testbed: String,
    /// Decides everything random
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub(super) seed: u64,
    /// One line of JSON
    #[arg(long)]
    pub(super) json: bool,
}

impl YcsbArgs {
    /// Compute nodes.
    pub(super) fn nodes(&self) -> u16 {
        self.cns.unwrap_or(self.clients.div_ceil(4)).min(self.clients)
    }

    pub(super) fn plan(&self) -> Plan {
        let as_published = self.setting == Setting::Artifact;
        let (initial, threshold) = (self.credit, self.threshold);
        let credits = Some(CreditRules { initial, threshold, ..CreditRules::DEFAULT });
        let rules = CiderRules { credits, ..CiderRules::DEFAULT };
        match self.sync {
            Sync::Optimistic => Plan::Optimistic { at_once: as_published },
            Sync::Absorbing => Plan::Absorbing,
            Sync::Cas => Plan::Cas { as_published },
            Sync::Mcs => Plan::Mcs { as_published },
            Sync::Cider => Plan::Cider(rules),
            Sync::CiderChoice => Plan::Cider(CiderRules { combines: false, ..rules }),
            Sync::CiderCombining => Plan::Cider(CiderRules { credits: None, ..rules }),
        }
    }
}
