//! Frames come out as they went in, however they are cut.

use proptest::prelude::*;

use super::super::frame::{BODY_BYTES_MAX, Frames, HEAD_BYTES, TooLong, open};

fn written(bodies: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    for body in bodies {
        let frame = open(&mut out);
        out.extend_from_slice(body);
        frame.finish(&mut out).expect("short enough");
    }
    out
}

/// Reads pieces of these lengths, over and over.
fn read(bytes: &[u8], cuts: &[usize], frames: &mut Frames) -> Result<Vec<Vec<u8>>, TooLong> {
    let (mut bodies, mut rest, mut cuts) = (Vec::new(), bytes, cuts.iter().cycle());
    while !rest.is_empty() {
        let (mut input, after) = rest.split_at((*cuts.next().expect("a cycle")).clamp(1, rest.len()));
        while let Some(body) = frames.next(&mut input)? {
            bodies.push(body.to_vec());
        }
        assert!(input.is_empty(), "all was taken");
        rest = after;
    }
    Ok(bodies)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn any_split_gives_the_same_frames(
        bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..12),
        cuts in prop::collection::vec(1_usize..200, 1..8),
    ) {
        let mut frames = Frames::new();
        prop_assert_eq!(read(&written(&bodies), &cuts, &mut frames).expect("short enough"), bodies);
        prop_assert!(frames.held_bytes() <= HEAD_BYTES + 300);
    }

    #[test]
    fn any_bytes_end_in_frames_or_an_error_that_stays(
        bytes in prop::collection::vec(any::<u8>(), 0..600),
        cuts in prop::collection::vec(1_usize..50, 1..4),
    ) {
        let mut frames = Frames::bounded(400);
        if let Err(error) = read(&bytes, &cuts, &mut frames) {
            prop_assert!(error.body_bytes > 400);
        }
        prop_assert!(frames.held_bytes() <= HEAD_BYTES + 400);
    }
}

#[test]
fn a_frame_that_is_whole_is_shown_where_it_is() {
    let bytes = written(&[vec![1; 100], vec![], vec![2; 3]]);
    let mut frames = Frames::new();
    let mut input = &bytes[..];
    let first = frames.next(&mut input).expect("short").expect("whole");
    assert!(std::ptr::eq(first.as_ptr(), bytes[HEAD_BYTES..].as_ptr()));
    assert_eq!(frames.next(&mut input), Ok(Some(&[][..])));
    assert_eq!(frames.next(&mut input), Ok(Some(&[2, 2, 2][..])));
    assert_eq!(frames.next(&mut input), Ok(None));
    assert_eq!(frames.held_bytes(), 0);
}

#[test]
fn the_bound_is_allowed_and_one_more_is_an_error_for_good() {
    let mut frames = Frames::bounded(3);
    let bytes = written(&[vec![1; 3], vec![1; 4]]);
    let mut input = &bytes[..];
    assert_eq!(frames.next(&mut input), Ok(Some(&[1, 1, 1][..])));
    for _ in 0..2 {
        assert_eq!(frames.next(&mut input), Err(TooLong { body_bytes: 4 }));
    }
    // The same in pieces.
    assert_eq!(read(&bytes[7..], &[2], &mut frames), Err(TooLong { body_bytes: 4 }));
    assert_eq!(frames.next(&mut &[][..]), Err(TooLong { body_bytes: 4 }));
}

#[test]
fn an_announcement_alone_takes_no_memory() {
    let mut frames = Frames::new();
    let head = (BODY_BYTES_MAX as u32).to_le_bytes();
    assert_eq!(frames.next(&mut &head[..]), Ok(None));
    assert!(frames.held_bytes() < 100);
    let piece = [7; 10_000];
    for count in 1..=20 {
        assert_eq!(frames.next(&mut &piece[..]), Ok(None));
        assert!(frames.held_bytes() <= 2 * (count + 1) * piece.len(), "{} after {count} pieces", frames.held_bytes());
    }
}

#[test]
fn a_large_buffer_is_given_back_and_a_small_one_kept() {
    let mut frames = Frames::new();
    assert_eq!(read(&written(&[vec![1; 1 << 20]]), &[1000], &mut frames).expect("short").len(), 1);
    assert_eq!(frames.next(&mut &[][..]), Ok(None));
    assert_eq!(frames.held_bytes(), 0);
    assert_eq!(read(&written(&[vec![1; 1000]]), &[100], &mut frames).expect("short").len(), 1);
    assert_eq!(frames.next(&mut &[][..]), Ok(None));
    assert!(frames.held_bytes() >= 1000);
}

#[test]
fn a_body_that_is_too_long_is_taken_back() {
    let mut out = b"before".to_vec();
    let frame = open(&mut out);
    out.resize(out.len() + BODY_BYTES_MAX + 1, 0);
    assert_eq!(frame.finish(&mut out), Err(TooLong { body_bytes: BODY_BYTES_MAX + 1 }));
    assert_eq!(out, b"before");
    let frame = open(&mut out);
    out.push(1);
    frame.take_back(&mut out);
    assert_eq!(out, b"before");
}
