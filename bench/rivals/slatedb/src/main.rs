//! The arm of SlateDB: it opens a database, loads it for a while, and prints what it saw.
//!
//! It reads a job in JSON, as package rivals sends it. It prints a line "begin" when
//! the measured time begins, a line "end" when it ends, and a line of JSON at last. The arm of
//! Fencepost does the same in Go.

use std::error::Error;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use slatedb::bytes::Bytes;
use slatedb::config::{PutOptions, Settings, WriteOptions};
use slatedb::object_store::aws::AmazonS3Builder;
use slatedb::Db;

#[derive(Deserialize)]
struct Job {
    endpoint: String,
    bucket: String,
    path: String,
    clients: u64,
    /// Arrivals of records, in microseconds since the start.
    arrivals: Option<Vec<u64>>,
    warm_ms: u64,
    long_ms: u64,
    flush_interval_ms: u64,
}

#[derive(Serialize)]
struct Seen {
    acks: usize,
    p50_us: u64,
    p99_us: u64,
}

const RECORD: usize = 100; // bytes, key and value
const KEY: usize = 8;

/// Load is what the clients share.
struct Load {
    db: Db,
    bytes: Bytes,
    next: AtomicU64,
    begin: Instant,
    end: Instant,
    took: Mutex<Vec<u64>>,
}

impl Load {
    /// Writes a new record and waits until it is durable. The time counts from start.
    async fn write(&self, start: Instant) -> Result<(), slatedb::Error> {
        let n = self.next.fetch_add(1, Ordering::Relaxed);
        let at = (n as usize * RECORD) % (self.bytes.len() - RECORD);
        let key = Bytes::copy_from_slice(&n.to_be_bytes());
        let value = self.bytes.slice(at..at + RECORD - KEY);
        self.db
            .put_bytes_with_options(key, value, &PutOptions::default(), &WriteOptions::default())
            .await?
            .await_durable()
            .await?;
        let now = Instant::now();
        if now >= self.begin && now < self.end {
            self.took.lock().unwrap().push((now - start).as_micros() as u64);
        }
        Ok(())
    }
}

/// Random bytes (xorshift64).
fn random(n: usize) -> Bytes {
    let mut x = 0x9e3779b97f4a7c15u64;
    let mut b = Vec::with_capacity(n + 8);
    while b.len() < n {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        b.extend_from_slice(&x.to_le_bytes());
    }
    Bytes::from(b)
}

fn say(line: &str) {
    println!("{line}");
    std::io::stdout().flush().unwrap();
}

async fn run(job: Job) -> Result<Seen, Box<dyn Error>> {
    let store = AmazonS3Builder::new()
        .with_endpoint(&job.endpoint)
        .with_bucket_name(&job.bucket)
        .with_region("us-east-1")
        .with_access_key_id("AK")
        .with_secret_access_key("SK")
        .with_allow_http(true)
        .build()?;
    let settings = Settings {
        flush_interval: Some(Duration::from_millis(job.flush_interval_ms)),
        // They would take requests and processor time that have nothing to do with appends.
        compactor_options: None,
        garbage_collector_options: None,
        ..Settings::default()
    };
    let db = Db::builder(job.path.as_str(), Arc::new(store))
        .with_settings(settings)
        .build()
        .await?;
    let started = Instant::now();
    let begin = started + Duration::from_millis(job.warm_ms);
    let end = begin + Duration::from_millis(job.long_ms);
    let load = Arc::new(Load {
        db,
        bytes: random(1 << 20),
        next: AtomicU64::new(0),
        begin,
        end,
        took: Mutex::new(Vec::new()),
    });

    let mut tasks = Vec::new();
    for _ in 0..job.clients {
        let load = load.clone();
        tasks.push(tokio::spawn(async move {
            while Instant::now() < load.end {
                load.write(Instant::now()).await?;
            }
            Ok::<(), slatedb::Error>(())
        }));
    }
    if let Some(arrivals) = job.arrivals {
        let load = load.clone();
        let runtime = tokio::runtime::Handle::current();
        // A thread of its own, because the runtime's timers have a resolution of 1 ms.
        tasks.push(tokio::task::spawn_blocking(move || {
            let mut each = Vec::new();
            for at in arrivals {
                let due = started + Duration::from_micros(at);
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                let load = load.clone();
                each.push(runtime.spawn(async move { load.write(due).await }));
            }
            for task in each {
                runtime.block_on(task).expect("a task")?;
            }
            Ok(())
        }));
    }
    tokio::time::sleep_until(begin.into()).await;
    say("begin");
    tokio::time::sleep_until(end.into()).await;
    say("end");
    for task in tasks {
        task.await??;
    }
    load.db.close().await?;
    let mut took = load.took.lock().unwrap();
    took.sort_unstable();
    let quantile = |q: f64| match took.len() {
        0 => 0,
        n => took[(((q * n as f64).ceil() as usize).max(1)) - 1],
    };
    Ok(Seen {
        acks: took.len(),
        p50_us: quantile(0.5),
        p99_us: quantile(0.99),
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let job: Job = serde_json::from_reader(std::io::stdin())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let seen = runtime.block_on(run(job))?;
    say(&serde_json::to_string(&seen)?);
    Ok(())
}
