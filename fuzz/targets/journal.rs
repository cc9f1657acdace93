#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| delta_engine::fuzz::journal(data));
