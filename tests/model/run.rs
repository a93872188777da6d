//! Carries out a generated run on a [`Rig`].

use mayfly_shards::{Span, Tenant, Verdict};

use crate::drive::{Delivered, Rig, TENANTS};
use crate::facts::{Ask, Item, ReplyTo};
use crate::strategy::{GROUPS, Op, PARTITIONS, Pace, Run, SUBSCRIBERS, Twist};

/// Everything, then what is left in the queues. The error tells where model and core part, with the whole run before it.
pub(crate) fn carry_out(run: &Run, is_exact: bool) -> Result<(), String> {
    let mut rig = Rig::new(run.settings.clone(), is_exact);
    let moves = run.ops.iter().any(|op| matches!(op, Op::Relocate { .. }));
    for op in &run.ops {
        step(&mut rig, run, op)?;
        if moves {
            // Of what moved only its age tells which is older: no two messages are of one nanosecond.
            rig.pass(Span(1))?;
        }
    }
    rig.drain()
}

fn step(rig: &mut Rig, run: &Run, op: &Op) -> Result<(), String> {
    match op {
        Op::Cancel(which) => at(&rig.parked(), *which).map_or(Ok(vec![]), |ticket| rig.cancel(ticket))?,
        Op::Undeliver(back, broken) => {
            // What may be taken back depends on what time has dropped by now.
            rig.expire()?;
            at_from_end(&rig.undeliverable(), *back).map_or(Ok(vec![]), |ticket| rig.undeliver(ticket, *broken))?
        }
        Op::Sent(back) => {
            at_from_end(&rig.undeliverable(), *back).into_iter().for_each(|ticket| rig.sent(ticket));
            vec![]
        }
        Op::Expire => rig.expire()?,
        Op::Relocate { chunk_bytes, is_called_off } => rig.relocate(*chunk_bytes, *is_called_off)?,
        Op::Switch(is_enabled) => rig.switch(*is_enabled)?,
        Op::Pass(pace) => {
            let span = span_of(rig, *pace);
            rig.pass(span)?
        }
        _ => match ask_of(rig, run, op) {
            Some(ask) => rig.ask(&ask)?.1,
            None => vec![],
        },
    };
    Ok(())
}

fn ask_of(rig: &mut Rig, run: &Run, op: &Op) -> Option<Ask> {
    let queue_of = |index: &usize| run.queues[*index].clone();
    Some(match op {
        Op::Push { queue, partition, sizes } => {
            Ask::Push { queue: queue_of(queue), partition: PARTITIONS[*partition].to_owned(), messages: rig.number(sizes) }
        }
        Op::Pop { queue, partition, group, batch, wait_ms, auto_ack } => Ask::Pop {
            queue: queue_of(queue),
            partition: partition.map(|p| PARTITIONS[p].to_owned()),
            group: GROUPS.iter().chain(&SUBSCRIBERS).nth(*group).expect("a group").to_string(),
            batch: *batch,
            wait_until: wait_ms.map(|ms| rig.now + Span::from_millis(ms)),
            auto_ack: *auto_ack,
        },
        Op::Ack { picks, twist } => return ack_of(rig, run, picks, *twist),
        Op::Call { queue, partition, size, wait_ms, fail_fast } => Ask::Call {
            queue: queue_of(queue),
            partition: PARTITIONS[*partition].to_owned(),
            request: rig.number(&[*size])[0],
            until: rig.now + Span::from_millis(*wait_ms),
            fail_fast: *fail_fast,
        },
        Op::Reply { picks, late_count, is_forged, is_other_tenant } => {
            return reply_of(rig, picks, *late_count, *is_forged, *is_other_tenant);
        }
        Op::Grant { tenant, allowance } => Ask::Grant { tenant: TENANTS[*tenant], allowance: *allowance },
        Op::Configure { queue, options } => Ask::Configure { queue: queue_of(queue), options: *options },
        Op::Undeclare { queue } => Ask::Undeclare { queue: queue_of(queue) },
        Op::Leave { queue, group } => Ask::Leave { queue: queue_of(queue), group: SUBSCRIBERS[*group].to_owned() },
        Op::Reset { queue } => Ask::Reset { queue: queue_of(queue) },
        Op::Delete { queue, is_overtaken } => Ask::Delete { queue: queue_of(queue), is_overtaken: *is_overtaken },
        Op::Read(ask) => ask.clone(),
        _ => return None,
    })
}

fn ack_of(rig: &Rig, run: &Run, picks: &[(usize, Verdict)], twist: Twist) -> Option<Ask> {
    let picked: Vec<(Delivered, Verdict)> =
        picks.iter().filter_map(|(back, verdict)| Some((at_from_end(&rig.delivered, *back)?, *verdict))).collect();
    let (first, _) = picked.first()?;
    let mut queue = first.queue.clone();
    let mut group = first.group.clone();
    let is_alike = |d: &Delivered| d.queue == queue && d.group == group;
    let mut items: Vec<Item> = picked.iter().filter(|(d, _)| is_alike(d)).map(|(d, verdict)| Rig::item(d, *verdict)).collect();
    match twist {
        Twist::Nothing => {}
        Twist::OtherGroup(other) => group = GROUPS[other].to_owned(),
        Twist::OtherQueue => queue = run.queues.iter().find(|q| **q != queue)?.clone(),
        Twist::OtherPartition(other) => items[0].partition = PARTITIONS[other].to_owned(),
        Twist::LaterDelivery => items[0].delivery += 1,
        Twist::EarlierDelivery => items[0].delivery = (items[0].delivery - 1).max(1),
        Twist::ForgedSeq => items[0].id = None,
    }
    Some(Ask::Ack { queue, group, items })
}

fn reply_of(rig: &mut Rig, picks: &[usize], late_count: u32, is_forged: bool, is_other_tenant: bool) -> Option<Ask> {
    let requests: Vec<Delivered> = rig.delivered.iter().filter(|delivered| delivered.seen.is_call).cloned().collect();
    let tenant = at_from_end(&requests, *picks.first()?)?.queue.tenant;
    let mut items: Vec<ReplyTo> = vec![];
    for back in picks {
        let request = at_from_end(&requests, *back).map(|delivered| delivered.seen.id).filter(|_| !is_forged);
        items.push(ReplyTo { request, answer: rig.number(&[10])[0], late_count });
    }
    Some(Ask::Reply { tenant: if is_other_tenant { Tenant(tenant.0 % 3 + 1) } else { tenant }, items })
}

fn span_of(rig: &Rig, pace: Pace) -> Span {
    match pace {
        Pace::Millis(ms) => Span::from_millis(ms),
        Pace::Deadline(further_ns) => {
            let until = rig.next_deadline().unwrap_or(rig.now).since(rig.now).0;
            Span(until.saturating_add_signed(further_ns))
        }
    }
}

fn at<T: Clone>(list: &[T], which: usize) -> Option<T> {
    (!list.is_empty()).then(|| list[which % list.len()].clone())
}

fn at_from_end<T: Clone>(list: &[T], back: usize) -> Option<T> {
    (!list.is_empty()).then(|| list[list.len() - 1 - back % list.len()].clone())
}
