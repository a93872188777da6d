//! Partitions that wander between nodes while clients use them, by lot: chunks and acknowledgements come late, doubled, out of order or
//! never; nodes die at any moment; hand-overs are called off, or go on to a third node before they ended.
//!
//! One seed is one run: `MAYFLY_SIM_SEED` runs it alone, `MAYFLY_SIM_SEEDS` so many from 0. Whatever happens: a message is given out by the
//! one node that holds its partition, in order, once a lease, with one attempt more each time; nothing that was accepted is lost unless
//! its node died with it; nobody sleeps where nothing will come.

use std::collections::{BTreeMap, BTreeSet};

use mayfly_shards::{
    Answer, Chunk, Cut, Opening, Options, Outcome, OwnedCommand, OwnedRequest, Parcel, QUEUE_MODE, Refusal, Span, Ticket, Time, Unpacked,
    Verdict,
};

use crate::cluster::{Got, Heard, Node, options};

const PARTITIONS: [&str; 3] = ["Default", "p", "q"];
const GROUPS: [&str; 2] = [QUEUE_MODE, "g"];
const LEASE: Span = Span::from_secs(2);

/// splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound.max(1)
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

/// What travels between nodes; to and from which incarnation.
#[derive(Clone)]
enum Mail {
    Chunk { to: u64, chunk: Chunk },
    Unpacked { cut: Cut, partition: &'static str, result: Unpacked },
    Release { to: u64, partition: &'static str, cut: Cut },
}

/// A hand-over under way.
struct Transfer {
    from: u64,
    to: u64,
    parcel: Parcel,
    want: u32,
    /// Something of this cut is at the receiver.
    has_copy: bool,
    is_released: bool,
    /// The source is gone.
    is_orphan: bool,
}

/// What a client waits for.
#[derive(Clone)]
struct Asked {
    /// The node's incarnation.
    at: u64,
    command: OwnedCommand,
}

/// Where a message stands with a group.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Standing {
    Leased { at: u64, until: Time },
    Back,
    Done,
}

struct Run {
    random: Random,
    nodes: Vec<Node>,
    incarnations_given: u64,
    tickets_given: u64,
    /// By the table of members.
    owner: BTreeMap<&'static str, u64>,
    /// Who may give messages out; None: on its way.
    holder: BTreeMap<&'static str, Option<u64>>,
    transfers: BTreeMap<&'static str, Transfer>,
    bag: Vec<Mail>,
    asked: BTreeMap<u64, Asked>,
    /// In order, by partition.
    accepted: BTreeMap<&'static str, Vec<String>>,
    pushed: BTreeMap<String, &'static str>,
    excused: BTreeSet<String>,
    standings: BTreeMap<(&'static str, String), (Standing, u32)>,
    /// The place of the last message given first to a group.
    reached: BTreeMap<(&'static str, &'static str), usize>,
    leases: Vec<(u64, &'static str, Got)>,
}

fn run_options() -> Options {
    Options { lease_seconds: 2, retry_limit: 1_000, ..options() }
}

fn known<'a>(names: &[&'a str], name: &str) -> &'a str {
    names.iter().find(|known| **known == name).expect("a known name")
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut run = Self {
            random: Random(seed.wrapping_mul(0xd1b5_4a32_d192_ed03)),
            nodes: Vec::new(),
            incarnations_given: 0,
            tickets_given: 0,
            owner: BTreeMap::new(),
            holder: BTreeMap::new(),
            transfers: BTreeMap::new(),
            bag: Vec::new(),
            asked: BTreeMap::new(),
            accepted: BTreeMap::new(),
            pushed: BTreeMap::new(),
            excused: BTreeSet::new(),
            standings: BTreeMap::new(),
            reached: BTreeMap::new(),
            leases: Vec::new(),
        };
        let count = 2 + run.random.below(2);
        for _ in 0..count {
            let node = run.fresh_node();
            run.nodes.push(node);
        }
        for partition in PARTITIONS {
            let at = run.random.below(count) as usize;
            let owner = run.nodes[at].incarnation;
            run.owner.insert(partition, owner);
            run.holder.insert(partition, Some(owner));
        }
        run
    }

    /// A node that knows the groups, as their consumers see to.
    fn fresh_node(&mut self) -> Node {
        self.incarnations_given += 1;
        let shard_count = 1 + self.random.below(3) as u16;
        let mut node = Node::new(self.incarnations_given, shard_count, run_options());
        for group in GROUPS {
            node.pop(u64::MAX, None, group, 1, None, true);
            node.carry();
            assert!(node.hear(u64::MAX).is_some());
        }
        node
    }

    fn at(&mut self, incarnation: u64) -> Option<&mut Node> {
        self.nodes.iter_mut().find(|node| node.incarnation == incarnation)
    }

    fn node(&mut self, incarnation: u64) -> &mut Node {
        self.at(incarnation).expect("a live node")
    }

    fn other_node(&mut self, than: &[u64]) -> Option<u64> {
        let others: Vec<u64> = self.nodes.iter().map(|node| node.incarnation).filter(|of| !than.contains(of)).collect();
        (!others.is_empty()).then(|| self.random.pick(&others))
    }

    fn ask(&mut self, at: u64, command: OwnedCommand, since: Option<Time>) {
        self.tickets_given += 1;
        let ticket = self.tickets_given;
        self.ask_as(ticket, at, command, since);
    }

    fn ask_as(&mut self, ticket: u64, at: u64, command: OwnedCommand, since: Option<Time>) {
        self.asked.insert(ticket, Asked { at, command: command.clone() });
        let partition = match &command.request {
            OwnedRequest::Push { partition, .. } => Some(partition.clone()),
            OwnedRequest::Pop { partition, .. } => partition.clone(),
            _ => unreachable!("a push or a pop"),
        };
        let node = self.node(at);
        command.lend(|command| match since {
            Some(since) => node.ask_since(partition.as_deref(), Ticket(ticket), command, since),
            None => node.ask(partition.as_deref(), Ticket(ticket), command),
        });
    }

    fn push(&mut self) {
        let partition = self.random.pick(&PARTITIONS);
        let count = 1 + self.random.below(3);
        let texts: Vec<String> = (0..count).map(|index| format!("{}", self.pushed.len() as u64 + index)).collect();
        self.pushed.extend(texts.iter().map(|text| (text.clone(), partition)));
        let payloads = crate::cluster::texts(&texts.iter().map(String::as_str).collect::<Vec<_>>(), 40);
        let request = OwnedRequest::Push { partition: partition.into(), payloads };
        let at = self.owner[partition];
        self.ask(at, OwnedCommand { tenant: crate::cluster::TENANT, queue: crate::cluster::QUEUE.into(), request }, None);
    }

    fn pop(&mut self) {
        let group = self.random.pick(&GROUPS);
        let partition = self.random.pick(&PARTITIONS);
        let at = self.owner[partition];
        let now = self.node(at).now;
        let wait = Span::from_millis(self.random.below(3_000));
        let request = OwnedRequest::Pop {
            partition: (!self.random.chance(25)).then(|| partition.into()),
            group: group.into(),
            batch: 1 + self.random.below(3) as u32,
            wait_until: self.random.chance(60).then_some(now + wait),
            auto_ack: self.random.chance(50),
        };
        self.ask(at, OwnedCommand { tenant: crate::cluster::TENANT, queue: crate::cluster::QUEUE.into(), request }, None);
    }

    /// An id of another incarnation than its partition's owner is stale, and nobody is asked.
    fn ack(&mut self) {
        if self.leases.is_empty() {
            return;
        }
        let index = self.random.below(self.leases.len() as u64) as usize;
        let (at, group, got) = self.leases.swap_remove(index);
        let partition = known(&PARTITIONS, &got.partition);
        if self.owner[partition] != at {
            return;
        }
        let verdict = if self.random.chance(60) { Verdict::Completed } else { Verdict::Nack };
        let node = self.node(at);
        node.ack(u64::MAX - 1, group, &got, verdict);
        node.carry();
        match node.hear(u64::MAX - 1) {
            Some(Heard::Answer(Answer::Acked(outcomes))) => {
                let entry = self.standings.get_mut(&(group, got.payload.clone())).expect("it was given");
                match outcomes[0].1 {
                    Outcome::Acked => entry.0 = Standing::Done,
                    Outcome::Redelivered if entry.1 == got.attempts => entry.0 = Standing::Back,
                    _ => {}
                }
            }
            // On its way, here or from here: it is redelivered.
            Some(Heard::Answer(Answer::Moved(_) | Answer::Refused(Refusal::NotHereYet))) | None => {}
            heard => panic!("an ack is answered, not {heard:?}"),
        }
        // Answered before anybody is given what came back.
        self.hear_all();
    }

    fn hear_all(&mut self) {
        for index in 0..self.nodes.len() {
            let node = &mut self.nodes[index];
            let (at, now) = (node.incarnation, node.now);
            for (name, adopted) in std::mem::take(&mut node.adopted) {
                self.note_adopted(at, known(&PARTITIONS, &name.partition), adopted.cut, adopted.is_late, adopted.is_whole);
            }
            for (Ticket(ticket), heard) in std::mem::take(&mut self.nodes[index].heard) {
                if let Some(asked) = self.asked.remove(&ticket) {
                    self.hear(ticket, at, now, asked, heard);
                }
            }
        }
    }

    fn hear(&mut self, ticket: u64, at: u64, now: Time, asked: Asked, heard: Heard) {
        match (heard, asked.command.request) {
            (Heard::Answer(Answer::Pushed(_)), OwnedRequest::Push { partition, payloads }) => {
                let partition = known(&PARTITIONS, &partition);
                for payload in payloads {
                    self.accept(partition, String::from_utf8_lossy(&payload).trim_end());
                }
            }
            (Heard::Messages(messages), OwnedRequest::Pop { partition, group, auto_ack, .. }) => {
                let group = known(&GROUPS, &group);
                messages.into_iter().for_each(|got| self.given(at, now, (group, partition.is_some()), auto_ack, got));
            }
            (Heard::Answer(Answer::Moved(moved)), _) => {
                let partition = match &moved.command.request {
                    OwnedRequest::Push { partition, .. } => known(&PARTITIONS, partition),
                    OwnedRequest::Pop { partition: Some(partition), .. } => known(&PARTITIONS, partition),
                    _ => self.random.pick(&PARTITIONS),
                };
                let to = self.owner[partition];
                // Two clocks: what has passed and what is left is the same.
                let to_now = self.node(to).now;
                let mut command = moved.command;
                let since = moved.since.map(|since| to_now - now.since(since));
                if let OwnedRequest::Pop { wait_until: Some(until), .. } = &mut command.request {
                    *until = to_now + until.since(now);
                }
                self.ask_as(ticket, to, command, since);
            }
            (Heard::Answer(Answer::Refused(Refusal::NotHereYet)), _) => {}
            (heard, request) => panic!("{heard:?} is no answer to {request:?}"),
        }
    }

    /// The place of a message in its partition.
    fn accept(&mut self, partition: &'static str, text: &str) -> usize {
        let accepted = self.accepted.entry(partition).or_default();
        if let Some(place) = accepted.iter().rposition(|other| other == text) {
            return place;
        }
        accepted.push(text.to_owned());
        accepted.len() - 1
    }

    fn given(&mut self, at: u64, now: Time, to: (&'static str, bool), auto_ack: bool, got: Got) {
        let (group, is_by_name) = to;
        let partition = known(&PARTITIONS, &got.partition);
        assert_eq!(self.holder[partition], Some(at), "{got:?} is given out by one that does not hold it");
        let place = self.accept(partition, &got.payload);
        let before = self.standings.get(&(group, got.payload.clone())).copied();
        match before {
            None => {
                assert_eq!((got.attempts, got.delivery), (1, 1), "{got:?} was never given to {group}");
                // What another core took is heard of later than what was taken behind it.
                let reached = self.reached.entry((group, partition)).or_default();
                assert!(*reached <= place || !is_by_name, "{got:?} is out of order for {group}");
                *reached = place.max(*reached);
            }
            Some((Standing::Done, _)) => panic!("{got:?} was settled by {group}"),
            Some((standing, attempts)) => {
                assert_eq!(got.attempts, attempts + 1, "{got:?} for {group}");
                let is_held = matches!(standing, Standing::Leased { at: other, until } if other == at && now < until);
                assert!(!is_held, "{got:?} is leased twice to {group}");
            }
        }
        // Since when another core has leased it is not known here.
        let until = if is_by_name { now + LEASE } else { now };
        let standing = if auto_ack { Standing::Done } else { Standing::Leased { at, until } };
        self.standings.insert((group, got.payload.clone()), (standing, got.attempts));
        if !auto_ack {
            self.leases.push((at, group, got));
        }
    }

    fn begin_transfer(&mut self) {
        let partition = self.random.pick(&PARTITIONS);
        let from = self.owner[partition];
        let Some(to) = self.other_node(&[from]).filter(|_| !self.transfers.contains_key(partition)) else { return };
        self.owner.insert(partition, to);
        self.expect(partition, to);
        let Some(parcel) = self.pack(partition, from) else {
            // Nothing is known of it there.
            self.holder.insert(partition, Some(to));
            self.node(to).open(partition, Opening::Nothing);
            return;
        };
        self.holder.insert(partition, None);
        let transfer = Transfer { from, to, parcel, want: 0, has_copy: false, is_released: false, is_orphan: false };
        self.transfers.insert(partition, transfer);
    }

    fn expect(&mut self, partition: &'static str, to: u64) {
        let wait = self.random.pick(&[Span::from_millis(300), Span::from_secs(20)]);
        self.node(to).expect(partition, wait);
    }

    fn pack(&mut self, partition: &'static str, from: u64) -> Option<Parcel> {
        let chunk_bytes = self.random.pick(&[1, 250, 1 << 20]);
        let parcel = self.node(from).pack(partition, chunk_bytes);
        // What a pop of any partition had taken before is still its; what was on its way in is there now (`Shard::has_deferred`).
        self.node(from).carry();
        self.hear_all();
        parcel.or_else(|| self.node(from).pack(partition, chunk_bytes))
    }

    /// The source does what it can for its hand-overs; some of it in vain.
    fn drive(&mut self, partition: &'static str) {
        let Some(Transfer { from, to, parcel, want, is_released, is_orphan, .. }) = self.transfers.get(partition) else { return };
        let (from, to, parcel, want, is_released, is_orphan) = (*from, *to, *parcel, *want, *is_released, *is_orphan);
        if is_orphan {
            return;
        }
        if is_released {
            return self.bag.push(Mail::Release { to, partition, cut: parcel.cut });
        }
        let ahead = self.random.below(2) as u32;
        match self.node(from).chunk(partition, parcel.cut, want + ahead) {
            Some(chunk) => self.bag.push(Mail::Chunk { to, chunk }),
            None if ahead > 0 => {}
            None => panic!("a cut is void though nothing has changed it"),
        }
    }

    fn deliver_any(&mut self) {
        if self.bag.is_empty() {
            return;
        }
        let index = self.random.below(self.bag.len() as u64) as usize;
        let is_lost = self.random.chance(15);
        let mail = if self.random.chance(15) { self.bag[index].clone() } else { self.bag.swap_remove(index) };
        if !is_lost {
            self.deliver(mail);
        }
    }

    fn deliver(&mut self, mail: Mail) {
        match mail {
            Mail::Chunk { to, chunk } => {
                // A node takes nothing of one that it knows to be gone, nor what it is not to have any more.
                let partition = known(&PARTITIONS, &chunk.name.partition);
                let is_current = self.transfers.get(partition).is_some_and(|of| of.to == to && of.parcel.cut == chunk.cut && !of.is_orphan);
                let has_source = self.at(chunk.cut.incarnation).is_some();
                let is_doubled = self.random.chance(50);
                let Some(node) = self.at(to).filter(|_| has_source && (is_current || is_doubled)) else { return };
                let cut = chunk.cut;
                let result = node.unpack(chunk);
                if !is_current {
                    // Of an earlier hand-over: the node finds out that it is not the owner.
                    if result != Unpacked::Stale {
                        node.discard(partition, cut);
                    }
                    return;
                }
                let is_kept = !matches!(result, Unpacked::Stale | Unpacked::Next(0));
                self.transfers.get_mut(partition).expect("current").has_copy |= is_kept;
                self.bag.push(Mail::Unpacked { cut, partition, result });
            }
            Mail::Unpacked { cut, partition, result } => {
                let Some(transfer) = self.transfers.get_mut(partition).filter(|of| of.parcel.cut == cut && !of.is_orphan) else { return };
                let (from, to) = (transfer.from, transfer.to);
                match result {
                    Unpacked::Next(next) => transfer.want = next,
                    // Of an earlier receiver it means nothing: only one that has a copy says it.
                    Unpacked::Whole if !transfer.is_released && transfer.has_copy && transfer.want != u32::MAX => {
                        transfer.is_released = true;
                        let released = self.node(from).release(partition, cut);
                        assert!(released.is_some(), "the present cut is released");
                        self.bag.push(Mail::Release { to, partition, cut });
                    }
                    _ => {}
                }
            }
            Mail::Release { to, partition, cut } => {
                let is_current = self.transfers.get(partition).is_some_and(|of| of.to == to && of.parcel.cut == cut);
                if let Some(node) = self.at(to) {
                    let is_open = node.open(partition, Opening::Released(cut));
                    assert!(is_open || !is_current, "what was released is there");
                }
            }
        }
        self.hear_all();
    }

    fn note_adopted(&mut self, at: u64, partition: &'static str, cut: Cut, is_late: bool, is_whole: bool) {
        let transfer = self.transfers.remove(partition).expect("a hand-over ends");
        assert_eq!((transfer.to, transfer.parcel.cut, is_late), (at, cut, false));
        self.holder.insert(partition, Some(at));
        if transfer.is_orphan && !is_whole {
            self.excuse(partition);
        }
        // Leases ended with the move, be it that it leads back to where they were given.
        for ((_, text), (standing, _)) in &mut self.standings {
            if matches!(standing, Standing::Leased { .. }) && self.pushed.get(text) == Some(&partition) {
                *standing = Standing::Back;
            }
        }
    }

    /// A node died with what is left of a partition.
    fn excuse(&mut self, partition: &'static str) {
        let of_partition = self.pushed.iter().filter(|(_, of)| **of == partition).map(|(text, _)| text.clone());
        self.excused.extend(of_partition);
    }

    fn call_off(&mut self, partition: &'static str) {
        let Some(Transfer { from, to, .. }) = self.transfers.get(partition).filter(|of| !of.is_released && !of.is_orphan) else { return };
        let (from, to) = (*from, *to);
        self.transfers.remove(partition);
        self.owner.insert(partition, from);
        self.holder.insert(partition, Some(from));
        assert!(self.node(from).restore(partition));
        self.node(to).dismiss(partition);
        self.hear_all();
    }

    /// Before the hand-over ended, the partition is to go to a third node.
    fn go_on(&mut self, partition: &'static str) {
        let Some(Transfer { from, to, .. }) = self.transfers.get(partition).filter(|of| !of.is_released && !of.is_orphan) else { return };
        let (from, to) = (*from, *to);
        let Some(third) = self.other_node(&[from, to]) else { return };
        self.owner.insert(partition, third);
        self.expect(partition, third);
        // Packed anew, so that what the second had is nothing to the third.
        self.holder.insert(partition, Some(from));
        assert!(self.node(from).restore(partition));
        let parcel = self.pack(partition, from).expect("it was there");
        self.holder.insert(partition, None);
        let transfer = Transfer { from, to: third, parcel, want: 0, has_copy: false, is_released: false, is_orphan: false };
        self.transfers.insert(partition, transfer);
        self.node(to).dismiss(partition);
        self.hear_all();
    }

    fn crash(&mut self) {
        let index = self.random.below(self.nodes.len() as u64) as usize;
        // What was said before it died was heard.
        self.hear_all();
        let fresh = self.fresh_node();
        let elapsed = self.nodes[index].now;
        let gone = std::mem::replace(&mut self.nodes[index], fresh).incarnation;
        assert!(elapsed > Time(0));
        self.asked.retain(|_, asked| asked.at != gone);
        self.leases.retain(|(at, ..)| *at != gone);
        for partition in PARTITIONS {
            let transfer = self.transfers.get_mut(partition);
            match transfer.map(|of| (of.from, of.to, of.is_released, of.has_copy, of.is_orphan)) {
                Some((from, to, _, has_copy, false)) if from == gone => {
                    self.transfers.get_mut(partition).expect("found").is_orphan = true;
                    if !has_copy {
                        self.transfers.remove(partition);
                        self.excuse(partition);
                        self.holder.insert(partition, Some(to));
                    }
                    assert!(self.node(to).open(partition, Opening::SourceGone { incarnation: gone }));
                }
                Some((from, to, false, _, false)) if to == gone => {
                    self.transfers.remove(partition);
                    self.owner.insert(partition, from);
                    self.holder.insert(partition, Some(from));
                    assert!(self.node(from).restore(partition));
                }
                Some((_, to, ..)) if to == gone => {
                    self.transfers.remove(partition);
                    self.move_to_anyone(partition);
                }
                _ if self.owner[partition] == gone => self.move_to_anyone(partition),
                _ => {}
            }
        }
        self.hear_all();
    }

    /// Its owner died: another goes on, empty.
    fn move_to_anyone(&mut self, partition: &'static str) {
        self.excuse(partition);
        let to = self.other_node(&[]).expect("a node");
        self.owner.insert(partition, to);
        self.holder.insert(partition, Some(to));
    }

    fn act(&mut self) {
        let partition = self.random.pick(&PARTITIONS);
        match self.random.below(100) {
            0..22 => self.push(),
            22..44 => self.pop(),
            44..56 => self.ack(),
            56..62 => self.begin_transfer(),
            62..74 => self.drive(partition),
            74..92 => self.deliver_any(),
            92..94 => self.call_off(partition),
            94..97 => self.go_on(partition),
            97 if self.random.chance(40) => self.crash(),
            _ => {
                let span = Span::from_millis(self.random.below(700));
                self.nodes.iter_mut().for_each(|node| node.pass(span));
            }
        }
        for _ in 0..self.random.below(6) {
            let (index, lane) = (self.random.below(self.nodes.len() as u64) as usize, self.random.below(9));
            self.nodes[index].carry_one(lane);
        }
        self.hear_all();
    }

    fn settle(&mut self) {
        for _ in 0..400 {
            self.nodes.iter_mut().for_each(Node::carry);
            self.hear_all();
            if self.transfers.is_empty() && self.bag.is_empty() {
                break;
            }
            if self.bag.is_empty() {
                PARTITIONS.into_iter().for_each(|partition| self.drive(partition));
            }
            while let Some(mail) = self.bag.pop() {
                self.deliver(mail);
            }
        }
        self.nodes.iter_mut().for_each(Node::carry);
        self.hear_all();
        assert!(self.transfers.is_empty(), "every hand-over ends");
    }

    fn finish(mut self) {
        self.settle();
        for Asked { at, command } in self.asked.values() {
            if let OwnedRequest::Pop { partition: Some(partition), .. } = &command.request {
                assert_eq!(self.owner[known(&PARTITIONS, partition)], *at, "a pop sleeps where its partition is not");
            }
        }
        self.nodes.iter_mut().for_each(|node| node.pass(Span::from_secs(30)));
        self.settle();
        assert!(self.asked.is_empty(), "everybody is answered: {:?}", self.asked.keys());
        // The last leases were given as the last waiting pops ended.
        self.nodes.iter_mut().for_each(|node| node.pass(Span(2 * LEASE.0)));
        self.settle();
        for partition in PARTITIONS {
            let owner = self.owner[partition];
            for group in GROUPS {
                for _ in 0..200 {
                    let before = self.standings.values().filter(|(standing, _)| *standing == Standing::Done).count();
                    let request = OwnedRequest::Pop {
                        partition: Some(partition.into()),
                        group: group.into(),
                        batch: 50,
                        wait_until: None,
                        auto_ack: true,
                    };
                    self.ask(owner, OwnedCommand { tenant: crate::cluster::TENANT, queue: crate::cluster::QUEUE.into(), request }, None);
                    self.settle();
                    if self.standings.values().filter(|(standing, _)| *standing == Standing::Done).count() == before {
                        break;
                    }
                }
            }
        }
        for (partition, accepted) in &self.accepted {
            for text in accepted.iter().filter(|text| !self.excused.contains(*text)) {
                for group in GROUPS {
                    let standing = self.standings.get(&(group, text.clone()));
                    assert!(matches!(standing, Some((Standing::Done, _))), "{group} never got {text} of {partition}: {standing:?}");
                }
            }
        }
        for node in &self.nodes {
            node.check_holdings();
            let held: u64 = node.inventory(2).iter().map(|(_, count)| count).sum();
            let ended = node.sum(|of| of.handed_over) + node.sum(|of| of.dropped.iter().sum());
            let settled = node.sum(|of| of.pushed) + node.sum(|of| of.adopted) - ended - held;
            assert_eq!(held, 0, "every group has settled everything");
            assert!(settled <= self.pushed.len() as u64);
            let waits = node.budget.bytes.used() - node.budget.usage(crate::cluster::TENANT).queues * mayfly_shards::QUEUE_OVERHEAD_BYTES;
            assert_eq!(waits, 0, "a node is charged for nothing that is gone");
        }
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn run(seed: u64) {
    let outcome = std::panic::catch_unwind(|| {
        let mut run = Run::new(seed);
        for _ in 0..number("MAYFLY_SIM_ACTIONS").unwrap_or(120) {
            run.act();
        }
        run.finish();
    });
    if let Err(panic) = outcome {
        eprintln!("seed {seed} fails; replay it with: MAYFLY_SIM_SEED={seed}");
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn wherever_partitions_wander_nothing_is_lost_doubled_or_out_of_order() {
    if let Some(seed) = number("MAYFLY_SIM_SEED") {
        return run(seed);
    }
    (0..number("MAYFLY_SIM_SEEDS").unwrap_or(2_000)).for_each(run);
}
