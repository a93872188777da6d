//! The rules between cores, each under a schedule made by hand: letters are carried one at a time, so that a test says which of two
//! comes first. What no schedule in the simulation tells apart (a letter too many, a wrong victim) is told apart here.

mod claims;
mod generations;
mod lifetimes;
mod node;
mod parking;
mod room;
