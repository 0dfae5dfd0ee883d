//! How long messages wait for a core: clients that send one and wait for its answer, in a closed
//! loop, and a server with one core that computes for so long.

use std::cell::RefCell;
use std::rc::Rc;

use anyhow::{Context, bail};
use farlock_fabric::{Endpoint, Envelope, Mailbox, Nanos, Slot, Wait};
use farlock_sim::{Config, Ended, SimEndpoint, Weakness, World};

use super::spec::{Figure, Series, Size};
use super::value::Value;
use crate::latency::Latency;
use crate::testbed::Testbed;

/// How often each client asks, and how often before anything counts.
const ASKS: u32 = 2_000;
const WARM_UP: u32 = 200;

/// How long messages wait, for each number of clients. The series says how long the core computes.
///
/// # Errors
/// The figure has no testbed that says what a message costs.
pub fn values(figure: &Figure, series: &Series, size: &Size) -> anyhow::Result<Vec<Value>> {
    let testbed = figure.testbed.as_deref().context("whose cores?")?;
    let testbed = Testbed::named(testbed)?;
    let handler: Nanos = series.subject.parse().context("how many nanoseconds?")?;
    let busy = handler + testbed.server("message").context("what a message costs")?;
    size.at.iter().map(|&clients| value(&testbed, busy, u16::try_from(clients)?)).collect()
}

fn value(testbed: &Testbed, busy: Nanos, clients: u16) -> anyhow::Result<Value> {
    let config = Config {
        seed: 1,
        endpoints: clients + 1,
        mailbox_cells: usize::from(clients).max(4),
        nic: testbed.nic()?,
        machines: testbed.machines()?,
        weakness: Weakness::NONE,
        ..Config::default()
    };
    let world = World::new(config);
    let server = world.endpoint();
    let waits = Rc::new(RefCell::new(Latency::default()));
    let to = Mailbox { endpoint: server.id(), slot: Slot(0) };
    world.spawn_server(server.id(), serve(server, busy, Rc::clone(&waits), clients));
    for _ in 0..clients {
        let client = world.endpoint();
        world.spawn(client.id(), ask(client, to));
    }
    match world.run() {
        Ended::Finished => {}
        ended => bail!("the simulated world ended in {ended:?}"),
    }
    let times = waits.borrow().summary();
    let rate = f64::from(u32::from(clients) * ASKS) / (world.now() as f64 / 1e9);
    Ok(Value::timed(rate, &times))
}

/// Takes messages one after the other, computes, and answers; notes how long each has waited.
async fn serve(server: SimEndpoint, busy: Nanos, waits: Rc<RefCell<Latency>>, clients: u16) {
    let mut warm_up = u32::from(clients) * WARM_UP;
    loop {
        let Some(Envelope { arrived, message, .. }) = server.receive(Slot(0)) else {
            server.wait(Wait { mail: Some(Slot(0)), ..Wait::default() }).await;
            continue;
        };
        warm_up = warm_up.saturating_sub(1);
        if warm_up == 0 {
            waits.borrow_mut().record(server.now() - arrived);
        }
        server.sleep(busy).await;
        let _ = server.post(farlock_fabric::Verb::Send {
            to: Mailbox::from_bits(message[0]),
            message: [0; 4],
        });
    }
}

async fn ask(client: SimEndpoint, to: Mailbox) {
    let me = Mailbox { endpoint: client.id(), slot: Slot(0) }.bits();
    for _ in 0..ASKS {
        let sent = client.send(to, [me, 0, 0, 0]);
        sent.await.expect("the server lives, and has room");
        while client.receive(Slot(0)).is_none() {
            client.wait(Wait { mail: Some(Slot(0)), ..Wait::default() }).await;
        }
    }
}
