//! Traces are read in every format; faults name their row; any bytes are read or refused.

use std::fmt::Write;

use bellwether_core::InputError;
use bellwether_core::cluster::Way;
use bellwether_core::prediction::Protocol;
use bellwether_sim::trace::{Entry, Format, ReadOptions, Remark, RowError, Trace, read};
use bellwether_sim::workload::write_csv;
use proptest::prelude::*;

macro_rules! data {
    ($path:literal) => {
        include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/", $path))
    };
}

const SAMPLES: [(Format, &[u8]); 9] = [
    (Format::Csv, b"job_id,submit_time,num_gpu,duration,model,device\n0,0,4,1613,m,v100\n1,10.5,8,2h,\"a,b\",p100|k80\n"),
    (Format::Itp, b"job_id,submission_time,duration,num_gpu\nx,5,60,1\ny,6,61,2\n"),
    (Format::Tiresias, data!("traces/clusters/tiresias.csv")),
    (Format::Gavel, data!("traces/clusters/gavel.trace")),
    (Format::Pollux, data!("traces/clusters/pollux.csv")),
    (Format::Philly, data!("traces/clusters/philly.json")),
    (Format::Helios, data!("traces/clusters/helios.csv")),
    (Format::Alibaba2020, data!("traces/clusters/pai_task_table.csv")),
    (Format::Alibaba2023, data!("traces/clusters/openb_pod_list.csv")),
];

fn plain(bytes: impl AsRef<[u8]>) -> Result<Trace, InputError> {
    read(bytes.as_ref(), None, &ReadOptions { place: "t.csv".into(), ..ReadOptions::default() })
}

fn ours(rows: &str) -> Trace {
    plain(format!("job_id,submit_time,num_gpu,duration\n{rows}")).unwrap()
}

fn names(trace: &Trace) -> Vec<&str> {
    trace.entries.iter().map(|entry| entry.job.description.name.as_str()).collect()
}

/// Name, arrival, devices, work.
fn essence(entry: &Entry) -> (&str, f64, u32, f64) {
    (&entry.job.description.name, entry.job.arrival_s, entry.job.asked(), entry.work)
}

fn essences(trace: &Trace) -> Vec<(&str, f64, u32, f64)> {
    trace.entries.iter().map(essence).collect()
}

/// Row, job and reason of each row that was refused.
fn refused(trace: &Trace) -> Vec<(usize, &str, String)> {
    trace.refused.iter().map(|refused| (refused.row, &*refused.job, refused.why.to_string())).collect()
}

#[test]
fn every_sample_is_recognised_and_equal_to_its_format_given() {
    for (format, bytes) in SAMPLES {
        let trace = plain(bytes).unwrap();
        assert_eq!(trace.format, format);
        assert_eq!(read(bytes, Some(format), &ReadOptions::default()).unwrap(), trace);
        assert_eq!(format.to_string().parse(), Ok(format));
    }
}

#[test]
fn our_format_says_everything() {
    let text = "job_id,submit_time,num_gpu,duration,model,batch,min_gpu,max_gpu,weight,deadline,device,work,adaptive_batch\n\
                a,1,4,2h,resnet,256,2,8,1.5,9000,v100|p100,,true\n\
                b,2,1,,bert,,,,,,,1e6,\n";
    let types = ["p100".to_string(), "v100".to_string()];
    let options = ReadOptions { device_types: &types, ..ReadOptions::default() };
    let trace = read(text.as_bytes(), None, &options).unwrap();
    assert_eq!(essences(&trace), [("a", 1.0, 4, 7200.0), ("b", 2.0, 1, 1e6)]);
    let job = &trace.entries[0].job;
    assert_eq!((job.min_devices, job.max_devices, job.weight, job.deadline_s), (2, 8, 1.5, Some(9000.0)));
    assert_eq!((job.device_types.as_slice(), job.adaptive_batch), ([0, 1].as_slice(), true));
    assert_eq!((job.description.model.as_str(), job.description.batch), ("resnet", 256));
    let job = &trace.entries[1].job;
    assert_eq!(
        (job.min_devices, job.max_devices, job.weight, job.deadline_s, job.adaptive_batch),
        (1, 1, 1.0, None, false)
    );
    assert!(job.device_types.is_empty());
}

#[test]
fn rows_say_how_workers_are_kept_together() {
    let text = "job_id,submit_time,num_gpu,duration,protocol,servers,nodes_per_update,switch_at,max_gpu\n\
                a,0,1,60,,,,,1\nb,1,4,60,asp,1..2,4,,\nc,2,4,60,bsp|ssp:3,2,,,8\nd,3,4,60,asp,,,0.25,\n\
                e,4,4,60,bsp,,,,\n";
    let trace = plain(text).unwrap();
    let way = |protocol, servers, nodes_per_update| Way { protocol, servers, nodes_per_update };
    let jobs: Vec<_> = trace.entries.iter().map(|entry| &entry.job).collect();
    assert!(jobs[0].ways.is_empty() && jobs[4].ways.is_empty());
    assert_eq!(jobs[1].ways, [way(Protocol::Asp, 1, 4), way(Protocol::Asp, 2, 4)]);
    assert_eq!(jobs[2].ways, [way(Protocol::Bsp, 0, 1), way(Protocol::Ssp(3), 2, 1)]);
    let switch = jobs[3].switch.as_ref().expect("it switches");
    assert_eq!((switch.at, switch.ways.as_slice()), (0.25, [way(Protocol::Asp, 1, 1)].as_slice()));
    let again = plain(write_csv(&trace.entries, &[])).expect("what was written is read");
    for (one, other) in trace.entries.iter().zip(&again.entries) {
        assert_eq!(one.job, other.job);
    }
    let wrong = |row: &str| {
        let header = "job_id,submit_time,num_gpu,duration,protocol,servers,switch_at\n";
        let trace = plain(format!("{header}{row}\nplain,9,1,60,,,\n")).unwrap();
        refused(&trace)[0].2.clone()
    };
    assert!(wrong("a,0,1,60,asp,,").contains("needs 2 with its servers"));
    assert!(wrong("a,0,4,60,bsp,2,").contains("no protocol that needs them"));
    assert!(wrong("a,0,4,60,asps,,").contains("protocol"));
    assert!(wrong("a,0,4,60,asp,0,").contains("from 1 to 64"));
    assert!(wrong("a,0,4,60,bsp,,0.5").contains("the one protocol that it goes on by"));
    assert!(wrong("a,0,4,60,asp,,1").contains("above 0 and below 1"));
}

#[test]
fn rows_survive_quotes_empty_lines_carriage_returns_and_byte_order_marks() {
    let text = "\u{feff}\r\njob_id,submit_time,num_gpu,duration\r\n\r\n\"a,\"\"b\"\"\",0,1,60\r\n\r\n \r\nc,0,0,60\r\nd , 1 ,2,60";
    let trace = plain(text).unwrap();
    assert_eq!(essences(&trace), [("a,\"b\"", 0.0, 1, 60.0), ("d", 1.0, 2, 60.0)]);
    assert_eq!(trace.entries.iter().map(|entry| entry.row).collect::<Vec<_>>(), [4, 8]);
    assert_eq!(refused(&trace), [(7, "c", "asks for no device".into())]);
}

#[test]
fn ties_go_by_number_where_all_names_are_numbers_and_else_by_text() {
    assert_eq!(names(&ours("10,0,1,1\n9,0,1,1\n100,0,1,1\n7,1,1,1\n")), ["9", "10", "100", "7"]);
    assert_eq!(names(&ours("10,0,1,1\n9,0,1,1\nx,0,1,1\n")), ["10", "9", "x"]);
    assert_eq!(
        names(&ours("36893488147419103233,0,1,1\n36893488147419103232,0,1,1\n")).first(),
        Some(&"36893488147419103232")
    );
}

#[test]
fn rows_out_of_order_are_sorted_and_it_is_said() {
    let trace = ours("a,5,1,1\nb,3,1,1\nc,9,1,1\nd,0,1,1\n");
    assert_eq!(names(&trace), ["d", "b", "a", "c"]);
    let what = "arrives before the row above it, as 2 of 4 rows do; sorted";
    assert_eq!(trace.repairs, [Remark { row: 3, job: "b".into(), what: what.into() }]);
    assert!(ours("a,3,1,1\nb,3,1,1\n").repairs.is_empty());
}

#[test]
fn a_name_that_comes_twice_is_refused_but_for_its_first_row() {
    let trace = ours("a,5,1,1\nb,3,1,1\na,0,1,1\nb,1,1,1\na,7,1,1\n");
    assert_eq!(essences(&trace), [("b", 3.0, 1, 1.0), ("a", 5.0, 1, 1.0)]);
    let twice = |row, job, first| (row, job, format!("has the name of the job in row {first}"));
    assert_eq!(refused(&trace), [twice(4, "a", 2), twice(5, "b", 3), twice(6, "a", 2)]);
}

#[test]
fn impossible_jobs_are_refused_with_their_rows() {
    let rows = "neg,-1,1,1\nnan,0,1,nan\ninf,inf,1,1\nnone,0,0,1\nwide,0,5000000000,1\nhalf,0,0.5,1\nlate,1600000000000,1,1\n\
                word,0,one,1\nshort,0,1\nlong,0,1,1,1\n,0,1,1\nempty,0,1,\nback,0,1,-5\nok,0,8.0,0\n";
    let trace = ours(rows);
    assert_eq!(essences(&trace), [("ok", 0.0, 8, 0.0)]);
    let whats = [
        (2, "neg", "submit_time: invalid time \"-1\": expected zero or more seconds"),
        (3, "nan", "duration: invalid time \"nan\": expected a finite number of seconds"),
        (4, "inf", "submit_time: invalid time \"inf\": expected a finite number of seconds"),
        (5, "none", "asks for no device"),
        (6, "wide", "num_gpu: invalid number of devices \"5000000000\": expected at most 4294967295"),
        (7, "half", "num_gpu: invalid number of devices \"0.5\": expected a whole number"),
        (
            8,
            "late",
            "submit_time: invalid time \"1600000000000\": expected at most 1e12 seconds; are these milliseconds?",
        ),
        (9, "word", "num_gpu: invalid number of devices \"one\": expected a whole number"),
        (10, "short", "has 3 columns instead of 4"),
        (11, "long", "has 5 columns instead of 4"),
        (12, "", "has no name"),
        (13, "empty", "never ran, or does not say for how long"),
        (14, "back", "duration: invalid time \"-5\": expected zero or more seconds"),
    ];
    assert_eq!(refused(&trace), whats.map(|(row, job, what)| (row, job, what.to_string())));
}

#[test]
fn ranges_weights_and_types_that_make_no_sense_are_refused() {
    let header =
        "job_id,submit_time,num_gpu,duration,min_gpu,max_gpu,weight,device,work,batch,adaptive_batch\n";
    let types = ["v100".to_string()];
    let options = ReadOptions { device_types: &types, ..ReadOptions::default() };
    let what = |row: &str| {
        let text = format!("{header}ok,0,1,1,,,,,,,\n{row}\n");
        let trace = read(text.as_bytes(), None, &options).unwrap();
        trace.refused.first().map(|refused| refused.why.to_string()).unwrap_or_default()
    };
    assert!(what("a,0,4,1,8,16,,,,,").contains("asks for 4 devices, and can use 8 to 16"));
    assert!(what("a,0,4,1,,2,,,,,").contains("can use 4 to 2"));
    assert!(what("a,0,4,1,0,8,,,,,").contains("can use 0 to 8"));
    assert!(what("a,0,4,1,,,0,,,,").contains("weight of 0"));
    assert!(
        what("a,0,4,1,,,,a100,,,").contains("invalid device of the cluster \"a100\": expected one of v100")
    );
    assert!(what("a,0,4,1,,,,,5,,").contains("both its duration and its work"));
    assert!(what("a,0,4,1,,,,,,0.5,").contains("number of samples"));
    assert!(what("a,0,4,1,,,,,,,maybe").contains("expected true or false"));
    assert_eq!(what("a,0,4,1,,,,a100|v100,,,"), "");
}

#[test]
fn the_range_of_the_options_holds_where_the_file_is_silent() {
    let text = "job_id,submit_time,num_gpu,duration,max_gpu\na,0,4,1,\nb,0,4,1,8\n";
    let options = ReadOptions { elastic: Some((2, 32)), ..ReadOptions::default() };
    let trace = read(text.as_bytes(), None, &options).unwrap();
    let ranges: Vec<(u32, u32)> =
        trace.entries.iter().map(|entry| (entry.job.min_devices, entry.job.max_devices)).collect();
    assert_eq!(ranges, [(2, 32), (4, 8)]);
    let error = read(text.as_bytes(), None, &ReadOptions { elastic: Some((3, 2)), ..options }).unwrap_err();
    assert!(error.what.contains("3 to 2"), "{error}");
}

#[test]
fn a_header_that_is_wrong_is_an_error_with_the_nearest_name() {
    let message = |text: &str| plain(text).unwrap_err().to_string();
    assert!(message("job_id,submit_time,num_gpu,duration,modle\n").contains("did you mean `model`?"));
    let error = message("job_id,submit_tme,num_gpu,duration\n1,0,1,1\n");
    assert!(error.contains("t.csv, row 1: has no column `submit_time`"), "{error}");
    assert!(error.contains("is `submit_tme` meant?"), "{error}");
    assert!(message("job_id,submit_time,num_gpu\n").contains("neither a column `duration` nor"));
    assert!(message("job_id,submit_time,num_gpu,duration,model,model\n").contains("`model` twice"));
    assert!(message("a,b\n1,2\n").contains("known formats: csv, itp"));
    assert!(message("1,2,3,4\n").contains("header of no known trace"));
    for empty in ["", "\n\n", "\u{feff} \r\n"] {
        assert!(message(empty).contains("is empty"), "{empty:?}");
    }
    assert!(message("job_id,submit_time,num_gpu,duration\n").contains("holds no job"));
    assert!(
        message("job_id,submit_time,num_gpu,duration\nx,0,0,1\n")
            .contains("t.csv, row 2: asks for no device")
    );
    assert!(message("{\"a\": 1}").contains("cluster_job_log"));
    let given = read(
        b"job_id,submit_time,num_gpu,duration\n1,0,1,1\n",
        Some(Format::Helios),
        &ReadOptions::default(),
    );
    assert!(given.unwrap_err().to_string().contains("no column `gpu_num`"));
}

#[test]
fn gavels_trace_is_read_in_steps() {
    let trace = plain(data!("gavel/g120.trace.tsv")).unwrap();
    assert_eq!((trace.format, trace.entries.len()), (Format::Gavel, 120));
    assert!(trace.refused.is_empty() && trace.repairs.is_empty());
    assert_eq!(essence(&trace.entries[5]), ("5", 995.0, 4, 172_058.0));
    let description = &trace.entries[5].job.description;
    assert_eq!((description.model.as_str(), description.batch), ("ResNet-18 (batch size 64)", 64));
    let lines = plain(data!("traces/clusters/gavel.trace")).unwrap();
    assert_eq!(
        essences(&lines),
        [("0", 0.0, 1, 161_714.0), ("1", 52.5, 4, 1_437_137.0), ("2", 60.0, 1, 1200.0)]
    );
    assert_eq!(
        (lines.entries[1].job.weight, lines.entries[1].row, lines.entries[2].job.description.batch),
        (2.5, 2, 1)
    );
}

#[test]
fn workloads_of_pollux_are_elastic_and_leave_their_work_to_the_model() {
    let trace = plain(data!("traces/clusters/pollux.csv")).unwrap();
    assert_eq!(essence(&trace.entries[0]), ("cifar10-0", 100.0, 8, f64::INFINITY));
    let job = &trace.entries[0].job;
    assert_eq!(
        (job.min_devices, job.max_devices, job.adaptive_batch, job.description.batch),
        (1, 2048, true, 2048)
    );
    let with_samples = "name,time,application,num_replicas,batch_size,samples\na,0,bert,2,32,5000\n";
    assert_eq!(plain(with_samples).unwrap().entries[0].work, 5000.0);
}

#[test]
fn attempts_of_philly_add_up_and_the_first_day_is_day_0() {
    let trace = plain(data!("traces/clusters/philly.json")).unwrap();
    let rows = [("application_1_3", 1800.0, 1, 30.0), ("application_1_1", 4299.0, 4, 86_460.0)];
    assert_eq!(essences(&trace), rows);
    let never_ran = |why: &RowError| matches!(why, RowError::Unfinished(why) if why.contains("never ran"));
    let refused: Vec<(usize, bool)> =
        trace.refused.iter().map(|refused| (refused.row, never_ran(&refused.why))).collect();
    assert_eq!(refused, [(2, true), (4, false)]);
    assert!(trace.repairs[0].what.contains("sorted"));
}

#[test]
fn helios_says_durations_and_dates() {
    let trace = plain(data!("traces/clusters/helios.csv")).unwrap();
    assert_eq!(
        essences(&trace),
        [("100", 67_261.0, 1, 600.0), ("101", 67_287.0, 4, 249.0), ("103", 86_410.0, 8, 0.0)]
    );
    assert_eq!(refused(&trace), [(4, "102", "asks for no device".into())]);
}

#[test]
fn tasks_of_a_job_are_put_together() {
    let trace = plain(data!("traces/clusters/pai_task_table.csv")).unwrap();
    assert_eq!(essences(&trace), [("job-b", 1_739_000.0, 1, 10.0), ("job-a", 1_739_162.0, 1, 138.0)]);
    let refused: Vec<(usize, &str)> =
        trace.refused.iter().map(|remark| (remark.row, remark.job.as_str())).collect();
    assert_eq!(refused, [(4, "job-c"), (5, "job-d")]);
    assert!(
        trace.repairs.iter().any(|remark| remark.job == "job-b" && remark.what.contains("part of a device"))
    );
    let unsorted: Vec<usize> = trace
        .repairs
        .iter()
        .filter(|remark| remark.what.contains("sorted"))
        .map(|remark| remark.row)
        .collect();
    assert_eq!(unsorted, [3]);
    let header =
        "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type\n";
    let with_header = [header.as_bytes(), data!("traces/clusters/pai_task_table.csv")].concat();
    assert_eq!(essences(&plain(with_header).unwrap()), essences(&trace));
    let by_arrival = "z,w,1,Terminated,0,10,,,100,T4\na,w,1,Terminated,5,10,,,100,T4\n";
    assert!(plain(by_arrival).unwrap().repairs.is_empty());
    let bad =
        "j,ps,1,Terminated,0,10,,,100,T4\nj,w,1,Terminated,-5,10,,,100,T4\nk,w,1,Terminated,5,10,,,100,T4\n";
    let trace = plain(bad).unwrap();
    assert_eq!((names(&trace), trace.refused[0].row), (vec!["k"], 1));
}

#[test]
fn pods_of_2023_name_types_and_parts() {
    let trace = plain(data!("traces/clusters/openb_pod_list.csv")).unwrap();
    let rows = [
        ("pod-1", 9_437_497.0, 8, 500.0),
        ("pod-2", 9_679_175.0, 1, 100.0),
        ("pod-3", 9_967_058.0, 1, 1512.0),
    ];
    assert_eq!(essences(&trace), rows);
    assert_eq!(trace.device_types[..2], ["V100M16", "V100M32"]);
    assert_eq!(trace.entries[2].job.device_types, [0, 1]);
    assert_eq!(trace.refused.iter().map(|remark| remark.row).collect::<Vec<_>>(), [5, 6]);
    assert_eq!((trace.repairs[0].row, trace.repairs[0].job.as_str()), (3, "pod-2"));
    let types = ["T4".to_string()];
    let options = ReadOptions { device_types: &types, ..ReadOptions::default() };
    let trace = read(data!("traces/clusters/openb_pod_list.csv"), None, &options).unwrap();
    assert!(trace.refused[0].why.to_string().contains("\"V100M16|V100M32\""), "{:?}", trace.refused);
}

#[test]
fn the_clusters_of_itp_are_whole() {
    let clusters: [(&[u8], usize); 4] = [
        (data!("itp-traces/cluster01.csv"), 1595),
        (data!("itp-traces/cluster04.csv"), 15_802),
        (data!("itp-traces/cluster07.csv"), 12_699),
        (data!("itp-traces/cluster10.csv"), 260),
    ];
    for (bytes, jobs) in clusters {
        let trace = plain(bytes).unwrap();
        assert_eq!((trace.format, trace.entries.len(), trace.refused.len()), (Format::Itp, jobs, 0));
    }
}

/// A text of the pieces that traces are made of, in an order that makes little sense.
fn pieces() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        prop::sample::select(vec![
            ",", "\n", "\r\n", "\t", "\"", "|", "-1", "0", "1e999", "nan", "2h", "[", "{", "]", "}", ":"
        ]),
        prop::sample::select(vec![
            "job_id",
            "submit_time",
            "num_gpu",
            "duration",
            "2020-06-09 18:41:01",
            "true",
            "99999999999999999999"
        ]),
    ];
    prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat().into_bytes())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300), format in prop::sample::select(Format::ALL.to_vec())) {
        let _ = plain(&bytes);
        let _ = read(&bytes, Some(format), &ReadOptions::default());
    }

    #[test]
    fn any_pieces_after_any_header_are_read_or_refused(tail in pieces(), sample in 0..SAMPLES.len(), keep in 0.0..1.0f64) {
        let (format, bytes) = SAMPLES[sample];
        let text = [&bytes[..(bytes.len() as f64 * keep) as usize], &tail].concat();
        for format in [None, Some(format)] {
            if let Ok(trace) = read(&text, format, &ReadOptions::default()) {
                lawful(&trace)?;
            }
        }
    }

    #[test]
    fn a_flipped_byte_is_read_or_refused(sample in 0..SAMPLES.len(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = SAMPLES[sample].1.to_vec();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(trace) = plain(&bytes) {
            lawful(&trace)?;
        }
    }
}

/// What every trace promises.
fn lawful(trace: &Trace) -> Result<(), TestCaseError> {
    prop_assert!(!trace.entries.is_empty());
    prop_assert!(trace.entries.is_sorted_by(|a, b| a.job.arrival_s <= b.job.arrival_s));
    for Entry { job, work, row, .. } in &trace.entries {
        prop_assert!(job.arrival_s.is_finite() && job.arrival_s >= 0.0 && *work >= 0.0 && *row >= 1);
        prop_assert!(
            job.asked() >= 1
                && job.min_devices >= 1
                && job.min_devices <= job.max_devices
                && job.weight > 0.0
        );
        prop_assert!(job.device_types.iter().all(|index| usize::from(*index) < trace.device_types.len()));
    }
    let mut names = names(trace);
    names.sort_unstable();
    prop_assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
    Ok(())
}

/// One million rows; run with `--ignored --nocapture` for the time.
#[test]
#[ignore = "a measurement"]
fn a_million_rows() {
    let mut text = String::from("job_id,submit_time,num_gpu,duration\n");
    for job in 0..1_000_000_u64 {
        writeln!(text, "{job},{},{},{}.5", job * 3, 1 << (job % 5), 60 + job * 7919 % 10_000).unwrap();
    }
    let begin = std::time::Instant::now();
    let trace = plain(&text).unwrap();
    println!("{} jobs of {} bytes in {:?}", trace.entries.len(), text.len(), begin.elapsed());
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    println!("{}", status.lines().find(|line| line.starts_with("VmHWM")).unwrap());
}
