//! Nodes, the links between their cores, whoever agrees on the table of members, and clients; by lot.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use mayfly::control::handover::{Reply, Word};
use mayfly::control::{Change, Member, Members, NodeId, Standing, State};
use mayfly_shards::{Answer, OwnedCommand, OwnedRequest, Payload, Refusal, Span, Tenant, Ticket, Time, shard_of};

use crate::ledger::{Ledger, Place};
use crate::node::{Frame, LEASE, Node, Said};
use crate::random::Random;

const TENANT: Tenant = Tenant(7);
const QUEUES: u64 = 5;
const PARTITIONS: [&str; 2] = ["Default", "p"];
const GROUP: &str = "g";
/// Says what happens, when `MAYFLY_SIM_TRACE` is set.
macro_rules! trace {
    ($($said:tt)*) => {
        if std::env::var_os("MAYFLY_SIM_TRACE").is_some() {
            eprintln!($($said)*);
        }
    };
}

/// Steps to rest in.
const REST_MAX: usize = 60_000;

/// On its way over a link.
enum Packet {
    Ask { ticket: Ticket, epoch: u64, shard: u16, command: OwnedCommand, waited: Option<Span> },
    Word { shard: u16, word: Word },
    Done { core: u16, epoch: u64 },
}

/// From a core of one start to another start.
type Link = (u64, u16, u64);

/// What a client waits for.
#[derive(Clone)]
struct Asked {
    place: Place,
    command: OwnedCommand,
    /// The start whose shard has it, if one has.
    at: Option<u64>,
}

pub(crate) struct World {
    random: Random,
    now: u64,
    state: State,
    newest: Arc<Members>,
    nodes: BTreeMap<u64, Node>,
    incarnations_given: u64,
    links: BTreeMap<Link, VecDeque<Packet>>,
    replies: BTreeMap<Link, VecDeque<Reply>>,
    asked: BTreeMap<Ticket, Asked>,
    /// To be asked again, with how long they waited.
    again: Vec<(Ticket, Asked, Option<Span>)>,
    /// At a node that is behind: with the epoch that they wait for.
    held: Vec<(u64, u16, Packet)>,
    tickets_given: u64,
    pushed: BTreeMap<Place, u64>,
    ledger: Ledger,
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let mut world = Self {
            random: Random::stream(seed, 1),
            now: 1_000_000_000,
            state: State::default(),
            newest: Arc::default(),
            nodes: BTreeMap::new(),
            incarnations_given: 0,
            links: BTreeMap::new(),
            replies: BTreeMap::new(),
            asked: BTreeMap::new(),
            again: Vec::new(),
            held: Vec::new(),
            tickets_given: 0,
            pushed: BTreeMap::new(),
            ledger: Ledger::default(),
        };
        for id in 1..=2 + world.random.below(3) {
            world.start(NodeId(id));
            world.set(NodeId(id), Standing::Live);
        }
        world
    }

    pub(crate) fn run(mut self, actions: usize) {
        for _ in 0..actions {
            self.act();
        }
        self.rest();
        self.close();
    }

    /// A node starts; its row is to follow.
    fn start(&mut self, id: NodeId) {
        self.incarnations_given += 1;
        let core_count = 1 + self.random.below(2) as u16;
        self.nodes.insert(id.0, Node::new(id, self.incarnations_given, core_count));
        self.set(id, Standing::Joining);
    }

    fn set(&mut self, id: NodeId, standing: Standing) {
        let known = self.newest.find(id).cloned();
        let member = match self.nodes.get(&id.0) {
            Some(node) => {
                Member { id, peer: format!("n{}:1", id.0).into(), incarnation: node.incarnation, shard_count: node.core_count(), standing }
            }
            None => Member { standing, ..known.expect("a row") },
        };
        trace!("node {} of start {} is {:?}", member.id.0, member.incarnation, member.standing);
        self.state.apply(&Change::Member { member });
        self.newest = Arc::new(self.state.members().clone());
    }

    fn standing(&self, id: u64) -> Option<Standing> {
        self.newest.find(NodeId(id)).map(|row| row.standing)
    }

    fn act(&mut self) {
        match self.random.below(100) {
            0..14 => self.push(),
            14..22 => self.pop(),
            22..62 => self.move_on(),
            62..74 => self.carry_packet(),
            74..84 => self.step_core(),
            84..88 => self.pass(),
            88..92 => self.tell_one(),
            92..94 => self.change_members(),
            94..96 => self.cut_link(),
            96 => self.crash_or_freeze(),
            _ => self.ask_again(),
        }
        self.hear();
    }

    fn any_node(&mut self) -> Option<u64> {
        let ids: Vec<u64> = self.nodes.iter().filter(|(_, node)| !node.is_frozen).map(|(id, _)| *id).collect();
        (!ids.is_empty()).then(|| self.random.pick(&ids))
    }

    fn any_place(&mut self) -> Place {
        (format!("q{}", self.random.below(QUEUES)), self.random.pick(&PARTITIONS).to_owned())
    }

    fn push(&mut self) {
        let place = self.any_place();
        // One after another, so that there is an order.
        let is_waiting = |asked: &Asked| asked.place == place && matches!(asked.command.request, OwnedRequest::Push { .. });
        if self.asked.values().any(is_waiting) || self.again.iter().any(|(_, asked, _)| is_waiting(asked)) {
            return;
        }
        let number = self.pushed.entry(place.clone()).or_default();
        *number += 1;
        let payload = Payload::from(format!("{}/{}-{number}", place.0, place.1).into_bytes());
        let request = OwnedRequest::Push { partition: (*place.1).into(), payloads: vec![payload] };
        self.ask_new(place, request);
    }

    fn pop(&mut self) {
        let place = self.any_place();
        let wait = self.random.chance(60).then(|| Span::from_millis(self.random.below(4_000)));
        let request = OwnedRequest::Pop {
            partition: Some((*place.1).into()),
            group: GROUP.into(),
            batch: 1 + self.random.below(3) as u32,
            // As a span, until it is asked.
            wait_until: wait.map(|wait| Time(self.now) + wait),
            auto_ack: self.random.chance(70),
        };
        self.ask_new(place, request);
    }

    fn ask_new(&mut self, place: Place, request: OwnedRequest) {
        self.tickets_given += 1;
        let command = OwnedCommand { tenant: TENANT, queue: (*place.0).into(), request };
        self.again.push((Ticket(self.tickets_given), Asked { place, command, at: None }, None));
        self.ask_again();
    }

    /// A client asks a core of some node.
    fn ask_again(&mut self) {
        if self.again.is_empty() {
            return;
        }
        let index = self.random.below(self.again.len() as u64) as usize;
        let Some(id) = self.any_node() else { return };
        let (ticket, asked, waited) = self.again.swap_remove(index);
        let core = self.random.below(u64::from(self.nodes[&id].core_count())) as u16;
        let node = &self.nodes[&id];
        let members = Arc::clone(&node.cores[usize::from(core)].members);
        let owner = members.owner(TENANT, &asked.place.0).and_then(|owner| members.find(owner)).cloned();
        let Some(owner) = owner.filter(|owner| owner.id.0 != id || owner.incarnation == node.incarnation) else {
            return self.again.push((ticket, asked, waited));
        };
        let shard = shard_of(TENANT, &asked.place.0, &asked.place.1, owner.shard_count).0;
        let own = node.incarnation;
        let (epoch, command) = (members.epoch(), asked.command.clone());
        self.asked.insert(ticket, Asked { at: Some(owner.incarnation), ..asked });
        if owner.incarnation == own {
            self.give(id, core, shard, ticket, command, waited);
        } else {
            let packet = Packet::Ask { ticket, epoch, shard, command, waited };
            self.links.entry((own, core, owner.incarnation)).or_default().push_back(packet);
        }
    }

    /// Gives a command to a shard of a node.
    fn give(&mut self, id: u64, from: u16, shard: u16, ticket: Ticket, mut command: OwnedCommand, waited: Option<Span>) {
        let (now, world_now) = (self.clock(id), self.now);
        trace!("node {id} gives {ticket:?} to its shard {shard}: {:?} {:?}", command.queue, command.request);
        if let OwnedRequest::Pop { wait_until: Some(until), .. } = &mut command.request {
            *until = now + until.since(Time(world_now));
        }
        let since = waited.map(|waited| now - waited);
        let now = self.now;
        self.nodes.get_mut(&id).expect("a node").give(from, shard, ticket, command, since, now);
    }

    fn clock(&self, id: u64) -> Time {
        Time(self.nodes[&id].incarnation * 1_000_000_000_000 + self.now)
    }

    fn move_on(&mut self) {
        let Some(id) = self.any_node() else { return };
        for _ in 0..1 + self.random.below(4) {
            let pick = self.random.below(64);
            self.nodes.get_mut(&id).expect("a node").carry_one(pick, self.now);
        }
    }

    fn step_core(&mut self) {
        let Some(id) = self.any_node() else { return };
        let core = self.random.below(u64::from(self.nodes[&id].core_count())) as u16;
        self.nodes.get_mut(&id).expect("a node").step(core, self.now);
    }

    fn pass(&mut self) {
        self.now += self.random.below(300_000_000);
        self.nodes.values_mut().filter(|node| !node.is_frozen).for_each(|node| node.expire(self.now));
    }

    fn tell_one(&mut self) {
        if let Some(id) = self.any_node() {
            trace!("node {id} is told of epoch {}", self.newest.epoch());
            let newest = Arc::clone(&self.newest);
            self.nodes.get_mut(&id).expect("a node").tell(&newest);
        }
    }

    /// The node of a start, if it is there and at work.
    fn at_work(&self, incarnation: u64) -> Option<u64> {
        self.nodes.iter().find(|(_, node)| node.incarnation == incarnation && !node.is_frozen).map(|(id, _)| *id)
    }

    fn is_there(&self, incarnation: u64) -> bool {
        self.nodes.values().any(|node| node.incarnation == incarnation)
    }

    fn carry_packet(&mut self) {
        let ways: Vec<Link> = self.links.iter().filter(|(_, lane)| !lane.is_empty()).map(|(link, _)| *link).collect();
        let backs: Vec<Link> = self.replies.iter().filter(|(_, lane)| !lane.is_empty()).map(|(link, _)| *link).collect();
        let all = (ways.len() + backs.len()) as u64;
        if all == 0 {
            return;
        }
        let pick = self.random.below(all) as usize;
        if let Some(link) = ways.get(pick) {
            self.carry_there(*link);
        } else {
            self.carry_back(backs[pick - ways.len()]);
        }
    }

    fn carry_there(&mut self, link: Link) {
        let (from, core, to) = link;
        if !self.is_there(to) || !self.is_there(from) {
            return self.break_link(link);
        }
        let Some(id) = self.at_work(to) else { return };
        let Some(packet) = self.links.get_mut(&link).and_then(VecDeque::pop_front) else { return };
        let at = core % self.nodes[&id].core_count();
        match packet {
            Packet::Ask { .. } => self.asked_over(id, at, packet),
            Packet::Word { shard, word } => {
                trace!("start {from} to node {id}: {}", spelled(&word));
                self.nodes.get_mut(&id).expect("a node").send(at, shard, Frame::Handover { from: (from, core), word });
            }
            Packet::Done { core: of, epoch } => {
                let Some(node) = self.nodes.values().find(|node| node.incarnation == from).map(|node| node.id) else { return };
                let receiver = self.nodes.get_mut(&id).expect("a node");
                for core in 0..receiver.core_count() {
                    receiver.send(at, core, Frame::Done { node, incarnation: from, core: of, epoch });
                }
            }
        }
    }

    /// A node is asked by another: what is not its own by a table that it has goes back.
    fn asked_over(&mut self, id: u64, at: u16, packet: Packet) {
        let Packet::Ask { ticket, epoch, shard, command, waited } = packet else { return };
        let node = &self.nodes[&id];
        let members = &node.cores[usize::from(at)].members;
        let owner = members.owner(TENANT, &command.queue).and_then(|owner| members.find(owner));
        if owner.is_some_and(|owner| owner.incarnation == node.incarnation) {
            return self.give(id, at, shard, ticket, command, waited);
        }
        if epoch > members.epoch() {
            let incarnation = node.incarnation;
            return self.held.push((incarnation, at, Packet::Ask { ticket, epoch, shard, command, waited }));
        }
        self.send_back(ticket, waited);
    }

    fn send_back(&mut self, ticket: Ticket, waited: Option<Span>) {
        trace!("{ticket:?} goes back");
        if let Some(asked) = self.asked.remove(&ticket) {
            self.again.push((ticket, Asked { at: None, ..asked }, waited));
        }
    }

    fn carry_back(&mut self, link: Link) {
        let (from, core, to) = link;
        if !self.is_there(to) || !self.is_there(from) {
            return self.break_link(link);
        }
        let Some(id) = self.at_work(from) else { return };
        let Some(reply) = self.replies.get_mut(&link).and_then(VecDeque::pop_front) else { return };
        let Some(node) = self.nodes.values().find(|node| node.incarnation == to).map(|node| node.id) else { return };
        trace!("node {} to start {from}: {reply:?}", node.0);
        self.nodes.get_mut(&id).expect("a node").answered(core, node, reply, self.now);
    }

    /// Of what was on a link nobody knows.
    fn break_link(&mut self, link: Link) {
        self.replies.remove(&link);
        for packet in self.links.remove(&link).unwrap_or_default() {
            if let Packet::Ask { ticket, .. } = packet {
                self.retry_in_doubt(ticket);
            }
        }
    }

    fn retry_in_doubt(&mut self, ticket: Ticket) {
        let Some(asked) = self.asked.remove(&ticket) else { return };
        if let OwnedRequest::Push { payloads, .. } = &asked.command.request {
            self.ledger.doubt(&String::from_utf8_lossy(&payloads[0]));
        }
        self.again.push((ticket, Asked { at: None, ..asked }, None));
    }

    fn cut_link(&mut self) {
        let links: Vec<Link> = self.links.keys().chain(self.replies.keys()).copied().collect();
        if links.is_empty() {
            return;
        }
        let link = self.random.pick(&links);
        self.break_link(link);
        self.mend(link);
    }

    fn mend(&mut self, (from, core, to): Link) {
        let Some(node) = self.nodes.values().find(|node| node.incarnation == to).map(|node| node.id) else { return };
        if let Some(id) = self.at_work(from) {
            self.nodes.get_mut(&id).expect("a node").linked(core, node, to, self.now);
        }
    }

    /// Every core has a link to a start that is there now.
    fn link_all(&mut self) {
        let starts: Vec<(u64, u16)> = self.nodes.values().map(|node| (node.incarnation, node.core_count())).collect();
        for (from, cores) in &starts {
            for core in 0..*cores {
                for (to, _) in starts.iter().filter(|(to, _)| to != from) {
                    self.mend((*from, core, *to));
                }
            }
        }
    }

    fn change_members(&mut self) {
        let id = 1 + self.random.below(5);
        match self.standing(id) {
            None if self.nodes.len() < 5 => self.start(NodeId(id)),
            Some(Standing::Joining) if self.nodes.get(&id).is_some_and(|node| !node.is_frozen) => {
                self.set(NodeId(id), Standing::Live);
                self.link_all();
            }
            Some(Standing::Live) if self.newest.live().count() > 1 && self.random.chance(60) => {
                if let Some(node) = self.nodes.get_mut(&id).filter(|node| !node.is_frozen) {
                    node.leaves = true;
                    self.set(NodeId(id), Standing::Leaving);
                }
            }
            Some(Standing::Down) => self.come_back(id),
            Some(_) => self.call_down(id),
            None => {}
        }
        self.end_leavers();
    }

    /// One that is gone starts anew, one that was frozen goes on once it knows that it was taken for dead.
    fn come_back(&mut self, id: u64) {
        match self.nodes.get(&id) {
            None => self.start(NodeId(id)),
            Some(node) if !node.is_frozen && node.cores.iter().all(|core| core.members.epoch() == self.newest.epoch()) => {
                self.set(NodeId(id), Standing::Joining);
                self.link_all();
            }
            Some(_) => {}
        }
    }

    /// A node that is dead or frozen is called down.
    fn call_down(&mut self, id: u64) {
        if self.nodes.get(&id).is_none_or(|node| node.is_frozen) && self.newest.live().any(|row| row.id.0 != id) {
            if self.nodes.contains_key(&id) {
                self.excuse(id);
            }
            self.set(NodeId(id), Standing::Down);
        }
    }

    fn end_leavers(&mut self) {
        let gone: Vec<u64> = self.nodes.iter().filter(|(_, node)| node.leaves && node.has_left()).map(|(id, _)| *id).collect();
        for id in gone {
            let incarnation = self.nodes[&id].incarnation;
            // What it said last has arrived.
            if self.links.iter().any(|((from, ..), lane)| *from == incarnation && !lane.is_empty()) {
                continue;
            }
            if !self.nodes[&id].keeps().is_empty() {
                assert_eq!(
                    self.nodes[&id].cores[0].members.live().count(),
                    0,
                    "there was somebody to give {:?} to",
                    self.nodes[&id].keeps()
                );
                self.excuse(id);
            }
            self.end(id);
            self.set(NodeId(id), Standing::Down);
        }
    }

    /// A process ends.
    fn end(&mut self, id: u64) {
        let Some(node) = self.nodes.remove(&id) else { return };
        let gone = node.incarnation;
        let links: Vec<Link> =
            self.links.keys().chain(self.replies.keys()).filter(|link| link.0 == gone || link.2 == gone).copied().collect();
        links.into_iter().for_each(|link| self.break_link(link));
        self.held.retain(|(of, ..)| *of != gone);
        let waiting: Vec<Ticket> = self.asked.iter().filter(|(_, asked)| asked.at == Some(gone)).map(|(ticket, _)| *ticket).collect();
        waiting.into_iter().for_each(|ticket| self.retry_in_doubt(ticket));
    }

    /// What a node keeps, or is on its way to or from it, may be lost.
    fn excuse(&mut self, id: u64) {
        trace!("node {id} is taken for dead, or dies");
        let node = &self.nodes[&id];
        let own = node.incarnation;
        let mut names: Vec<Place> = node.keeps().into_iter().map(|name| (name.queue.into_string(), name.partition.into_string())).collect();
        let words = self.links.iter().filter(|((from, _, to), _)| *from == own || *to == own).flat_map(|(_, lane)| lane);
        names.extend(words.filter_map(|packet| match packet {
            Packet::Word { word, .. } => Some(place_of(word)),
            _ => None,
        }));
        names.extend(node.lanes.values().flatten().filter_map(|frame| match frame {
            Frame::Handover { word, .. } => Some(place_of(word)),
            _ => None,
        }));
        trace!("excused: {names:?}");
        names.iter().for_each(|place| self.ledger.excuse(place));
        // Of what it takes in while it is taken for dead the order bends, too.
        for queue in 0..QUEUES {
            for partition in PARTITIONS {
                self.ledger.bend(&(format!("q{queue}"), partition.to_owned()));
            }
        }
    }

    fn crash_or_freeze(&mut self) {
        let Some(id) = self.any_node().filter(|_| self.nodes.len() > 1) else { return };
        if self.random.chance(40) {
            self.excuse(id);
            self.end(id);
        } else {
            self.nodes.get_mut(&id).expect("a node").is_frozen = true;
        }
        let frozen: Vec<u64> = self.nodes.iter().filter(|(_, node)| node.is_frozen).map(|(id, _)| *id).collect();
        if frozen.len() > 1 || self.random.chance(50) {
            self.thaw(self.nodes.iter().find(|(_, node)| node.is_frozen).map(|(id, _)| *id));
        }
    }

    fn thaw(&mut self, id: Option<u64>) {
        let Some(id) = id else { return };
        self.nodes.get_mut(&id).expect("a node").is_frozen = false;
        // It learns what is new before it answers anybody.
        let newest = Arc::clone(&self.newest);
        let node = self.nodes.get_mut(&id).expect("a node");
        node.tell(&newest);
        let (core_count, control) = (node.core_count(), node.core_count());
        for core in 0..core_count {
            while node.lanes.get(&(control, core)).is_some_and(|lane| !lane.is_empty()) {
                let lanes: Vec<_> = node.lanes.iter().filter(|(_, lane)| !lane.is_empty()).map(|(lane, _)| *lane).collect();
                let pick = lanes.iter().position(|lane| *lane == (control, core)).expect("a lane");
                node.carry_one(pick as u64, self.now);
            }
        }
        self.link_all();
    }

    /// What nodes said goes where it is to go.
    fn hear(&mut self) {
        let ids: Vec<u64> = self.nodes.keys().copied().collect();
        for id in ids {
            let own = self.nodes[&id].incarnation;
            for said in std::mem::take(&mut self.nodes.get_mut(&id).expect("a node").said) {
                match said {
                    Said::Answer(ticket, answer) => self.answered(id, ticket, answer),
                    Said::Messages(ticket, messages) => {
                        let Some(Asked { place, command, .. }) = self.asked.remove(&ticket) else { continue };
                        let auto_ack = matches!(command.request, OwnedRequest::Pop { auto_ack: true, .. });
                        if !messages.is_empty() {
                            trace!("node {id} gives {messages:?} to {ticket:?}, settled {auto_ack}");
                        }
                        messages.iter().for_each(|text| self.ledger.deliver(&place, text, auto_ack));
                    }
                    Said::Reply { to: (start, core), reply } => {
                        if self.is_there(start) {
                            self.replies.entry((start, core, own)).or_default().push_back(reply);
                        }
                    }
                    Said::Word { core, to, word } => {
                        if self.is_there(to.incarnation) {
                            self.links.entry((own, core, to.incarnation)).or_default().push_back(Packet::Word { shard: to.shard.0, word });
                        }
                    }
                    Said::Done { core, to, epoch } => {
                        if let Some(start) = self.nodes.get(&to.0).map(|node| node.incarnation) {
                            self.links.entry((own, core, start)).or_default().push_back(Packet::Done { core, epoch });
                        }
                    }
                    Said::Late(name) => self.ledger.bend(&(name.queue.into_string(), name.partition.into_string())),
                }
            }
        }
        for (incarnation, at, packet) in std::mem::take(&mut self.held) {
            match (self.at_work(incarnation), &packet) {
                (Some(id), Packet::Ask { epoch, .. }) if self.nodes[&id].cores[usize::from(at)].members.epoch() >= *epoch => {
                    self.asked_over(id, at, packet);
                }
                _ => self.held.push((incarnation, at, packet)),
            }
        }
    }

    fn answered(&mut self, id: u64, ticket: Ticket, answer: Answer) {
        match answer {
            Answer::Pushed(_) => {
                let Some(asked) = self.asked.remove(&ticket) else { return };
                let OwnedRequest::Push { payloads, .. } = &asked.command.request else { unreachable!("a push") };
                trace!("node {id} took {:?}", String::from_utf8_lossy(&payloads[0]));
                self.ledger.acknowledge(&asked.place, &String::from_utf8_lossy(&payloads[0]));
            }
            Answer::Moved(moved) => {
                let now = self.clock(id);
                self.send_back(ticket, moved.since.map(|since| now.since(since)));
            }
            Answer::Refused(Refusal::NotHereYet) => self.send_back(ticket, None),
            answer => panic!("{answer:?}"),
        }
    }

    /// Nothing happens to nodes any more: what is under way ends.
    fn rest(&mut self) {
        for id in self.nodes.keys().copied().collect::<Vec<_>>() {
            self.thaw(Some(id).filter(|id| self.nodes[id].is_frozen));
        }
        for step in 0..REST_MAX {
            if step % 200 == 0 {
                self.now += 20_000_000;
                self.nodes.values_mut().for_each(|node| node.expire(self.now));
                self.settle_members();
            }
            self.move_on();
            self.carry_packet();
            self.step_core();
            self.ask_again();
            self.hear();
            if step % 50 == 0 && self.is_at_rest() {
                return;
            }
        }
        for node in self.nodes.values() {
            for core in &node.cores {
                let awaited: Vec<_> = core.handover.awaited().collect();
                let (epoch, is_done) = (core.members.epoch(), core.handover.is_done());
                eprintln!("node {} core of epoch {epoch} of {}: done {is_done}, awaits {awaited:?}", node.id.0, self.newest.epoch());
            }
        }
        panic!("it never comes to rest: {:?} asked, {:?} to ask", self.asked.keys().collect::<Vec<_>>(), self.again.len());
    }

    /// Everybody who is dead is down, everybody else is live.
    fn settle_members(&mut self) {
        for id in 1..=5 {
            match self.standing(id) {
                Some(Standing::Joining) => {
                    self.set(NodeId(id), Standing::Live);
                    self.link_all();
                }
                Some(Standing::Live | Standing::Leaving) if !self.nodes.contains_key(&id) => self.set(NodeId(id), Standing::Down),
                Some(Standing::Down) if self.nodes.contains_key(&id) || self.newest.live().count() == 0 => self.come_back(id),
                _ => {}
            }
        }
        self.end_leavers();
        let newest = Arc::clone(&self.newest);
        let behind = |node: &&mut Node| node.is_quiet() && node.cores.iter().any(|core| core.members.epoch() < newest.epoch());
        self.nodes.values_mut().filter(behind).for_each(|node| node.tell(&newest));
    }

    fn is_at_rest(&self) -> bool {
        let is_parked = |asked: &Asked| matches!(asked.command.request, OwnedRequest::Pop { .. });
        let are_cores = self.nodes.values().all(|node| {
            let is_over = |core: &crate::node::Core| {
                core.members.epoch() == self.newest.epoch() && !core.handover.is_settling() && core.handover.is_done()
            };
            node.is_quiet() && node.cores.iter().all(is_over)
        });
        let is_agreed = self.newest.rows().iter().all(|row| matches!(row.standing, Standing::Live | Standing::Down));
        let are_links = self.links.values().all(VecDeque::is_empty) && self.replies.values().all(VecDeque::is_empty);
        are_cores && is_agreed && are_links && self.again.is_empty() && self.held.is_empty() && self.asked.values().all(is_parked)
    }

    fn close(mut self) {
        for Asked { place, at, .. } in self.asked.values() {
            let owner = self.newest.owner(TENANT, &place.0).and_then(|owner| self.newest.find(owner)).expect("an owner");
            assert_eq!(*at, Some(owner.incarnation), "a pop of {place:?} sleeps where its partition is not");
        }
        // The last pops end, and then the last leases.
        for _ in 0..3 {
            self.now += 3 * LEASE.0;
            self.nodes.values_mut().for_each(|node| node.expire(self.now));
            self.hear();
        }
        assert!(self.asked.is_empty(), "everybody is answered");
        for queue in 0..QUEUES {
            for partition in PARTITIONS {
                self.drain(&(format!("q{queue}"), partition.to_owned()));
            }
        }
        self.ledger.close();
        for node in self.nodes.values() {
            assert!(node.keeps().is_empty(), "node {} keeps {:?}", node.id.0, node.keeps());
        }
    }

    fn drain(&mut self, place: &Place) {
        for _ in 0..40 {
            let request =
                OwnedRequest::Pop { partition: Some((*place.1).into()), group: GROUP.into(), batch: 50, wait_until: None, auto_ack: true };
            self.ask_new(place.clone(), request);
            self.rest();
        }
    }
}

fn spelled(word: &Word) -> String {
    match word {
        Word::Chunk(chunk) => {
            let texts: Vec<_> = chunk.messages.iter().map(|of| String::from_utf8_lossy(&of.payload).into_owned()).collect();
            format!("{:?} {:?} {} of {}: {texts:?}", chunk.cut, place_of(word), chunk.index, chunk.chunk_count)
        }
        word => format!("{word:?}"),
    }
}

fn place_of(word: &Word) -> Place {
    let name = match word {
        Word::Chunk(chunk) => &chunk.name,
        Word::Released { name, .. } | Word::Discarded { name, .. } => name,
    };
    (name.queue.to_string(), name.partition.to_string())
}
