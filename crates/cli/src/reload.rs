//! The configuration read again while the instance runs: all of it, or nothing.
//!
//! Called on SIGHUP and by `floodwall reload`. The file and the flags are judged as at the start;
//! the difference to what runs is a plan of steps (`reload/plan.rs`), which are carried out at the
//! workers' desks. Invariants: a file with a problem changes nothing; a step that is refused has
//! all steps before it taken back; what needs a restart is named each time, and keeps running as
//! it was; connections and services that the difference does not name are not touched.
//!
//! # Under flood
//! Reachable by the owner's processes only. One reload at a time; a step keeps a worker for a few
//! changes between two bursts.

mod plan;

use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use floodwall_base::{IpCidr, Randomness};
use floodwall_dispatch::{Control, Shown};
use floodwall_stack::{AccessRule, AddAddress, Application, ApplicationChange, Host, StackConfig};
use serde_json::{Value, json};

use self::plan::{ReloadPlan, ReloadStep};
use crate::args::RunArgs;
use crate::neighbors;
use crate::routes;
use crate::settings::{self, GivenSettings, RunSettings, ServiceWord};

/// How long a worker may take for one step.
const STEP_PATIENCE: Duration = Duration::from_secs(2);

/// What shards are made of: also those that are made again after a panic.
pub(crate) struct ShardConfig {
    pub(crate) stack: StackConfig,
    pub(crate) services: Vec<GivenSettings<ServiceWord>>,
}

/// What is shared between the threads that may reload, and the one that makes shards again.
pub(crate) type SharedShardConfig = Arc<Mutex<ShardConfig>>;

/// Reads the configuration again, and applies the difference.
pub(crate) struct Reloader {
    args: RunArgs,
    running: Mutex<RunSettings>,
    controls: Vec<Control<Shown<Host>>>,
    shards: SharedShardConfig,
    /// Makes a service's application.
    make: fn(&ServiceWord) -> Box<dyn Application>,
}

/// What a reload changed.
#[derive(Debug, Default)]
pub(crate) struct ReloadOutcome {
    /// One sentence each.
    pub(crate) changed: Vec<String>,
    /// Keys with a new value that needs a restart.
    pub(crate) needs_restart: Vec<String>,
}

impl ReloadOutcome {
    /// For the control socket.
    pub(crate) fn to_json(&self) -> Value {
        json!({ "changed": self.changed, "needs_restart": self.needs_restart })
    }
}

impl Reloader {
    pub(crate) fn new(
        args: &RunArgs,
        running: &RunSettings,
        controls: Vec<Control<Shown<Host>>>,
        shards: SharedShardConfig,
        make: fn(&ServiceWord) -> Box<dyn Application>,
    ) -> Self {
        let running = Mutex::new(running.clone());
        Self { args: args.clone(), running, controls, shards, make }
    }

    /// Reads the file again and applies it.
    ///
    /// # Errors
    /// What is wrong, one line each; nothing has changed then.
    pub(crate) fn reload(&self) -> Result<ReloadOutcome, Vec<String>> {
        if self.args.config.is_none() {
            let why = "there is no file to be read again: it was started without --config";
            return Err(vec![why.to_owned()]);
        }
        let mut running = lock(&self.running);
        let new = settings::load(self.args.config.as_deref(), &self.args)
            .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>())?;
        let plan = ReloadPlan::between(&running, &new);
        self.carry_out(&plan.steps).map_err(|why| vec![why])?;
        self.note(&plan.running);
        *running = plan.running;
        Ok(ReloadOutcome {
            changed: plan.steps.iter().map(ToString::to_string).collect(),
            needs_restart: plan.needs_restart,
        })
    }

    /// Shards that are made again are made as those that run.
    fn note(&self, running: &RunSettings) {
        let mut shards = lock(&self.shards);
        shards.services.clone_from(&running.services);
        for (config, wanted) in shards.stack.interfaces.iter_mut().zip(&running.interfaces) {
            config.addresses = wanted.addresses.iter().map(|given| given.value).collect();
            config.access = wanted.transit.access.iter().map(|r| r.value.clone()).collect();
        }
    }

    /// Carries out all steps or, where one is refused, takes back those before it.
    fn carry_out(&self, steps: &[ReloadStep]) -> Result<(), String> {
        let mut done = Vec::new();
        for step in steps {
            match self.one(step) {
                Ok(true) => done.push(step),
                Ok(false) => {}
                Err(why) => {
                    let back = done.iter().rev().map(|step| self.one(&step.inverse()));
                    let failed: Vec<_> = back.filter_map(Result::err).collect();
                    let tail = match failed.is_empty() {
                        true => "nothing was changed".to_owned(),
                        false => format!("and not all could be taken back: {}", failed.join("; ")),
                    };
                    return Err(format!("{step}: {why}; {tail}"));
                }
            }
        }
        Ok(())
    }

    /// One step; whether it changed anything.
    fn one(&self, step: &ReloadStep) -> Result<bool, String> {
        match step {
            ReloadStep::AddAddress(dev, address) => self.address(dev, *address, true),
            ReloadStep::RemoveAddress(dev, address) => self.address(dev, *address, false),
            ReloadStep::AddRoute(words) => self.route("append", words),
            // One that was taken away by hand is gone already.
            ReloadStep::RemoveRoute(words) => Ok(self.route("del", words).unwrap_or(false)),
            ReloadStep::Dhcp(dev, on) => self.dhcp(dev, *on),
            ReloadStep::Access { dev, new, old } => self.access(dev, new, old),
            ReloadStep::Services { stop, start } => self.services(stop, start),
        }
    }

    fn control(&self) -> Result<&Control<Shown<Host>>, String> {
        self.controls.first().ok_or_else(|| "there is no worker".to_owned())
    }

    fn address(&self, dev: &str, address: IpCidr, add: bool) -> Result<bool, String> {
        let dev = dev.to_owned();
        let asked = self.control()?.ask(STEP_PATIENCE, move |desk| {
            let (stack, now) = (desk.engine.engine.stack_mut(), desk.now);
            // For delays that need not be unpredictable.
            let mut random = Randomness::from_number(now.as_nanos());
            let iface = neighbors::interface_named(stack, &dev)?;
            let interface = stack.interfaces().get(usize::from(iface.0));
            let has = interface.is_some_and(|i| {
                i.addresses()
                    .any(|a| a.addr == address.addr() && a.prefix_len == address.prefix_len())
            });
            if has == add {
                return Ok(false);
            }
            let done = match add {
                true => stack.add_address(iface, AddAddress::manual(address), now, &mut random),
                false => stack.remove_address(iface, address.addr(), now, &mut random),
            };
            done.map(|()| true).map_err(|error| error.to_string())
        });
        asked.map_err(|error| error.to_string())?
    }

    fn route(&self, how: &str, words: &str) -> Result<bool, String> {
        let batch = format!("0 whole\nroute {how} {words}");
        let answer = routes::session::serve(self.control()?, &batch);
        match answer.get("error").and_then(Value::as_str) {
            Some(why) => Err(why.to_owned()),
            None => Ok(true),
        }
    }

    fn dhcp(&self, dev: &str, on: bool) -> Result<bool, String> {
        let dev = dev.to_owned();
        let asked = self.control()?.ask(STEP_PATIENCE, move |desk| {
            let (stack, now) = (desk.engine.engine.stack_mut(), desk.now);
            let mut random = Randomness::from_number(now.as_nanos());
            let iface = neighbors::interface_named(stack, &dev)?;
            stack.set_dhcp(iface, on, now, &mut random);
            Ok(true)
        });
        asked.map_err(|error| error.to_string())?
    }

    fn access(&self, dev: &str, new: &[AccessRule], old: &[AccessRule]) -> Result<bool, String> {
        let set = |control: &Control<Shown<Host>>, rules: &[AccessRule]| {
            let (dev, rules) = (dev.to_owned(), rules.to_vec());
            let asked = control.ask(STEP_PATIENCE, move |desk| {
                let stack = desk.engine.engine.stack_mut();
                let iface = neighbors::interface_named(stack, &dev)?;
                match stack.set_access_list(iface, &rules) {
                    true => Ok(()),
                    false => Err(format!("{} rules are too many", rules.len())),
                }
            });
            asked.map_err(|error| error.to_string())?
        };
        self.on_each(|control| set(control, new), |control| drop(set(control, old)))
    }

    fn services(&self, stop: &[ServiceWord], start: &[ServiceWord]) -> Result<bool, String> {
        let change =
            |control: &Control<Shown<Host>>, stop: &[ServiceWord], start: &[ServiceWord]| {
                let (told, outcome) = mpsc::sync_channel(1);
                let change = ApplicationChange {
                    stop: stop.iter().map(|s| format!("{}:{}", s.kind.word(), s.port)).collect(),
                    start: start.iter().map(self.make).collect(),
                    // The requester may have given up.
                    done: Box::new(move |done| _ = told.try_send(done.map_err(|e| e.to_string()))),
                };
                let posted = control.ask(STEP_PATIENCE, move |desk| {
                    desk.engine.engine.change_applications(change);
                });
                posted.map_err(|error| error.to_string())?;
                let late = |_| "a worker did not carry it out in time".to_owned();
                outcome.recv_timeout(STEP_PATIENCE).map_err(late)?
            };
        self.on_each(
            |control| change(control, stop, start),
            |control| drop(change(control, start, stop)),
        )
    }

    /// On every worker, or on none.
    fn on_each(
        &self,
        does: impl Fn(&Control<Shown<Host>>) -> Result<(), String>,
        undoes: impl Fn(&Control<Shown<Host>>),
    ) -> Result<bool, String> {
        for (worker, control) in self.controls.iter().enumerate() {
            if let Err(why) = does(control) {
                self.controls.iter().take(worker).for_each(&undoes);
                return Err(why);
            }
        }
        Ok(true)
    }
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}
