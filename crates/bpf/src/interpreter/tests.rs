//! What the interpreter does with good programs, and with those that the kernel would refuse.

use super::*;
use crate::{AccessSize, Assembler, Function, JumpCondition, Operation, Register, Width};

fn run(
    machine: &mut Machine,
    write: impl FnOnce(&mut Assembler),
) -> Result<Outcome, InterpreterFault> {
    let mut a = Assembler::new();
    write(&mut a);
    machine.run(&a.finish().unwrap(), &mut vec![0; 64])
}

fn value(write: impl FnOnce(&mut Assembler)) -> Result<u64, InterpreterFault> {
    run(&mut Machine::new(), write).map(|outcome| outcome.verdict)
}

#[test]
fn arithmetic_is_that_of_both_widths() {
    let of = |does, left: u64, right: i32| {
        value(|a| {
            a.set_wide(Register::R0, left).compute(Register::R0, does, right).exit();
        })
    };
    assert_eq!(of(Operation::Subtract, 1, 2), Ok(u64::MAX));
    assert_eq!(of(Operation::Divide, 100, 7), Ok(14));
    assert_eq!(of(Operation::Divide, 100, 0), Ok(0), "RFC 9669 section 4.1");
    assert_eq!(of(Operation::Modulo, 100, 0), Ok(100));
    assert_eq!(of(Operation::Xor, 0xff, -1), Ok(!0xff));
    assert_eq!(of(Operation::ShiftRightSigned, 1 << 63, 63), Ok(u64::MAX));
    let word = |does, left: u64, right: i32| {
        value(|a| {
            a.set_wide(Register::R0, left).compute_word(Register::R0, does, right).exit();
        })
    };
    assert_eq!(word(Operation::Add, 0xffff_ffff, 1), Ok(0), "the upper half is zero then");
    assert_eq!(word(Operation::ShiftRightSigned, 0x8000_0000, 31), Ok(0xffff_ffff));
    for (width, swapped) in
        [(Width::Half, 0x8877), (Width::Word, 0x8877_6655), (Width::Double, 0x8877_6655_4433_2211)]
    {
        let got = value(|a| {
            a.set_wide(Register::R0, 0x1122_3344_5566_7788).swap(Register::R0, width).exit();
        });
        assert_eq!(got, Ok(swapped));
    }
}

#[test]
fn jumps_compare_with_and_without_a_sign() {
    let taken = |when, left: i32, right: i32, is_word: bool| {
        let got = value(|a| {
            let yes = a.label();
            a.set(Register::R1, left);
            match is_word {
                true => a.jump_if_word(Register::R1, when, right.cast_unsigned(), yes),
                false => a.jump_if(Register::R1, when, right, yes),
            };
            a.set(Register::R0, 0).exit();
            a.place(yes);
            a.set(Register::R0, 1).exit();
        });
        got.unwrap() == 1
    };
    for is_word in [false, true] {
        assert!(
            taken(JumpCondition::Above, -1, 1, is_word)
                && !taken(JumpCondition::SignedAbove, -1, 1, is_word)
        );
        assert!(
            taken(JumpCondition::SignedBelow, -1, 1, is_word)
                && taken(JumpCondition::AtMost, 3, 3, is_word)
        );
        assert!(
            taken(JumpCondition::Meets, 6, 2, is_word)
                && !taken(JumpCondition::Meets, 6, 1, is_word)
        );
    }
}

#[test]
fn what_the_kernel_would_refuse_is_a_fault_and_no_panic() {
    assert_eq!(
        value(|a| {
            a.exit();
        }),
        Err(InterpreterFault::Unwritten),
        "no result"
    );
    assert_eq!(
        value(|a| {
            a.set(Register::R0, 0);
        }),
        Err(InterpreterFault::PastEnd)
    );
    let reads = |at: i16| {
        value(|a| {
            a.load(AccessSize::Word, Register::R0, Register::R10, at).exit();
        })
    };
    assert_eq!(reads(-4), Err(InterpreterFault::Unwritten));
    assert_eq!(reads(-516), Err(InterpreterFault::NoMemory));
    assert_eq!(reads(0), Err(InterpreterFault::OutOfBounds));
    let packet = |at: i16| {
        value(|a| {
            a.load(AccessSize::Word, Register::R2, Register::R1, 0)
                .load(AccessSize::Half, Register::R0, Register::R2, at)
                .exit();
        })
    };
    assert_eq!(packet(62), Ok(0));
    assert_eq!(packet(63), Err(InterpreterFault::OutOfBounds));
    assert_eq!(packet(-1), Err(InterpreterFault::NoMemory));
    let context = |at: i16| {
        value(|a| {
            a.load(AccessSize::Word, Register::R0, Register::R1, at).exit();
        })
    };
    assert_eq!(context(24), Err(InterpreterFault::OutOfBounds));
    let store = value(|a| {
        a.store(AccessSize::Word, Register::R1, 0, Register::R1).exit();
    });
    assert_eq!(store, Err(InterpreterFault::ReadOnly));
    let nothing = value(|a| {
        a.set(Register::R1, 0).load(AccessSize::Byte, Register::R0, Register::R1, 0);
    });
    assert_eq!(nothing, Err(InterpreterFault::NoMemory));
    let lost = value(|a| {
        a.call(Function::Core).copy(Register::R0, Register::R1).exit();
    });
    assert_eq!(lost, Err(InterpreterFault::Unwritten), "calls take their arguments");
    assert_eq!(
        value(|a| {
            a.map(Register::R1, 99);
        }),
        Err(InterpreterFault::NoMap)
    );
    let unknown = Instruction { code: 0x85, registers: 0, offset: 0, immediate: 999 };
    let unknown = Machine::new().run(&[unknown], &mut vec![0; 64]);
    assert_eq!(unknown, Err(InterpreterFault::UnknownFunction(999)));
}

#[test]
fn every_byte_of_code_is_known_or_refused() {
    for code in 0..=u8::MAX {
        for registers in [0x00, 0x10, 0xa1, 0xff] {
            let it = Instruction { code, registers, offset: 0, immediate: 0 };
            let exit = Instruction { code: 0x95, registers: 0, offset: 0, immediate: 0 };
            // Whether it is a fault is its own affair; that it ends is ours.
            let _ = Machine::new().run(&[it, exit], &mut vec![0; 64]);
        }
    }
}

#[test]
fn a_run_ends_however_long_the_program_would_run() {
    let back = Instruction { code: 0x05, registers: 0, offset: -1, immediate: 0 };
    assert_eq!(Machine::new().run(&[back], &mut Vec::new()), Err(InterpreterFault::TooLong));
    let deep = Instruction { code: 0x85, registers: 0x10, offset: 0, immediate: -1 };
    assert_eq!(Machine::new().run(&[deep], &mut Vec::new()), Err(InterpreterFault::TooDeep));
}

#[test]
fn functions_of_the_program_keep_the_upper_registers_and_have_a_stack_of_their_own() {
    let got = value(|a| {
        let own = a.label();
        a.set(Register::R6, 7).set(Register::R1, 35).store(
            AccessSize::Double,
            Register::R10,
            -8,
            Register::R6,
        );
        a.call_own(own).compute_reg(Register::R0, Operation::Add, Register::R6);
        a.load(AccessSize::Double, Register::R1, Register::R10, -8)
            .compute_reg(Register::R0, Operation::Add, Register::R1)
            .exit();
        a.place(own);
        a.copy(Register::R0, Register::R1).set(Register::R6, 1000).store(
            AccessSize::Double,
            Register::R10,
            -8,
            Register::R6,
        );
        a.exit();
    });
    assert_eq!(got, Ok(49));
}

/// Looks a four-byte key up and returns the first word of the value, or 1000 without one.
fn look(a: &mut Assembler, map: i32, key: u32) {
    let none = a.label();
    a.set_word(Register::R1, key)
        .store(AccessSize::Word, Register::R10, -4, Register::R1)
        .map(Register::R1, map);
    a.copy(Register::R2, Register::R10).add(Register::R2, -4).call(Function::MapLookup);
    a.jump_if(Register::R0, JumpCondition::Equal, 0, none)
        .load(AccessSize::Double, Register::R0, Register::R0, 0)
        .exit();
    a.place(none);
    a.set(Register::R0, 1000).exit();
}

#[test]
fn maps_hold_what_was_put_in_within_their_bounds() {
    let mut machine = Machine::new();
    let (array, cores) = (machine.array(8, 2), machine.per_core_array(8, 2));
    let (hash, lru) = (machine.hash(4, 8, 2), machine.lru_hash(4, 8, 2));
    let key = |n: u32| n.to_ne_bytes();
    let held = |machine: &mut Machine, map, n| run(machine, |a| look(a, map, n)).unwrap().verdict;
    for map in [array, cores, hash, lru] {
        assert!(machine.set(map, &key(1), &7_u64.to_ne_bytes()));
        assert_eq!(held(&mut machine, map, 1), 7);
        assert!(!machine.set(map, &[0; 3], &[0; 8]) && !machine.set(map, &key(1), &[0; 9]));
    }
    assert_eq!((held(&mut machine, array, 2), held(&mut machine, hash, 2)), (1000, 1000));
    machine.core = 1;
    assert_eq!(held(&mut machine, cores, 1), 0, "each core has its own");
    machine.core = 0;
    for map in [hash, lru] {
        assert!(machine.set(map, &key(2), &8_u64.to_ne_bytes()));
    }
    assert!(!machine.set(hash, &key(3), &[0; 8]), "full");
    assert_eq!(held(&mut machine, lru, 1), 7);
    assert!(machine.set(lru, &key(3), &[0; 8]));
    assert_eq!((held(&mut machine, lru, 1), held(&mut machine, lru, 2)), (7, 1000));
    assert!(machine.remove(hash, &key(1)) && !machine.remove(hash, &key(1)));
    assert_eq!(held(&mut machine, hash, 1), 1000);
}

#[test]
fn a_value_is_not_left_by_a_load_into_the_next_one() {
    let mut machine = Machine::new();
    let array = machine.array(12, 2);
    let got = run(&mut machine, |a| {
        let none = a.label();
        a.set(Register::R1, 0)
            .store(AccessSize::Word, Register::R10, -4, Register::R1)
            .map(Register::R1, array);
        a.copy(Register::R2, Register::R10).add(Register::R2, -4).call(Function::MapLookup);
        a.jump_if(Register::R0, JumpCondition::Equal, 0, none).load(
            AccessSize::Double,
            Register::R0,
            Register::R0,
            8,
        );
        a.place(none);
        a.exit();
    });
    assert_eq!(got, Err(InterpreterFault::OutOfBounds));
}

#[test]
fn tail_calls_go_on_with_the_frame_and_fall_through_where_there_is_no_program() {
    let mut machine = Machine::new();
    let (programs, sockets) = (machine.programs(2), machine.sockets(2));
    let mut other = Assembler::new();
    other
        .map(Register::R1, sockets)
        .set(Register::R2, 1)
        .set(Register::R3, 1)
        .call(Function::RedirectMap)
        .exit();
    machine.set_program(programs, 1, other.finish().unwrap());
    let calls = |a: &mut Assembler, index| {
        a.tail_call(Register::R1, programs, index).set(Register::R0, 2).exit();
    };
    let got = |machine: &mut Machine, index| run(machine, |a| calls(a, index)).unwrap();
    assert_eq!(got(&mut machine, 0).verdict, verdict::PASS);
    assert_eq!(got(&mut machine, 1).verdict, verdict::DROP, "no socket there");
    machine.set_socket(sockets, 1);
    let outcome = got(&mut machine, 1);
    assert_eq!(outcome.verdict, verdict::REDIRECT);
    assert_eq!(outcome.target, Some(Target::Socket { map: sockets, key: 1 }));
}

#[test]
fn old_addresses_of_a_frame_are_bad_once_its_end_has_moved() {
    let cut = |touches: bool| {
        let mut frame = vec![0; 64];
        let mut a = Assembler::new();
        a.copy(Register::R6, Register::R1).load(AccessSize::Word, Register::R7, Register::R1, 0);
        a.set(Register::R2, -10).call(Function::AdjustTail);
        if touches {
            a.load(AccessSize::Byte, Register::R1, Register::R7, 0);
        }
        a.exit();
        let outcome = Machine::new().run(&a.finish().unwrap(), &mut frame);
        (outcome.map(|it| it.verdict), frame.len())
    };
    assert_eq!(cut(false), (Ok(0), 54));
    assert_eq!(cut(true), (Err(InterpreterFault::NoMemory), 54));
}
