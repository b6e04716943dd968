//! redis-rs: plain and cluster-aware connections, blocking and async, ConnectionManager and SentinelClient.

use crate::trial::{Failed, Trial, Way, Work, equal, key, nodes_from, place, port, until};
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::caching::CacheConfig;
use redis::cluster::{ClusterClient, ClusterConnection, cluster_pipe};
use redis::sentinel::{SentinelClient, SentinelServerType};
use redis::{AsyncCommands, AsyncConnectionConfig, Client, Commands, Connection, ConnectionLike, RedisResult, Script};
use std::collections::HashSet;
use std::future::Future;
use std::time::Duration;
use tokio::runtime::Runtime;

fn client(node: u16, path: &str) -> RedisResult<Client> {
    Client::open(format!("redis://127.0.0.1:{}/{path}", port("any-key", node)))
}

fn plain() -> RedisResult<Connection> {
    client(0, "")?.get_connection()
}

fn cluster_addresses() -> Vec<String> {
    nodes_from(0)
        .map(|node| format!("redis://127.0.0.1:{}", port("cluster", node)))
        .collect()
}

fn cluster() -> RedisResult<ClusterConnection> {
    ClusterClient::new(cluster_addresses())?.get_connection()
}

/// The client asks the Sentinels in this order.
fn sentinels(first: u16) -> RedisResult<SentinelClient> {
    let nodes: Vec<_> = nodes_from(first)
        .map(|node| format!("redis://127.0.0.1:{}", port("any-key", node)))
        .collect();
    SentinelClient::build(nodes, "paritas".to_owned(), None, SentinelServerType::Master)
}

fn strings(r: &mut (impl ConnectionLike + Commands)) -> Work<()> {
    equal(r.set_nx(key("a"), 1), Ok(true))?;
    equal(r.set_nx(key("a"), 2), Ok(false))?;
    equal(r.getset(key("a"), 2), Ok(Some("1".to_owned())))?;
    equal(r.append(key("a"), "xy"), Ok(3))?;
    let () = r.mset(&[(key("{t}a"), 1), (key("{t}b"), 2)])?;
    equal(
        r.mget(&[key("{t}a"), key("{t}b"), key("{t}c")]),
        Ok(vec![Some(1), Some(2), None]),
    )?;
    equal(r.get_del(key("a")), Ok("2xy".to_owned()))?;
    equal(r.exists(key("a")), Ok(false))?;
    let large = "x".repeat(300_000);
    let () = r.set(key("large"), &large)?;
    equal(r.get(key("large")), Ok(large))
}

fn expiry(r: &mut (impl ConnectionLike + Commands)) -> Work<()> {
    let () = r.pset_ex(key("e"), "v", 150)?;
    until(|| Ok(r.get::<_, Option<String>>(key("e"))?.is_none()))?;
    let () = r.set(key("e"), "v")?;
    equal(r.expire(key("e"), 100), Ok(true))?;
    let left: i64 = r.ttl(key("e"))?;
    equal((91..=100).contains(&left), true)?;
    equal(r.persist(key("e")), Ok(true))
}

fn counters(r: &mut (impl ConnectionLike + Commands)) -> Work<()> {
    equal(
        (r.incr(key("n"), 1), r.incr(key("n"), 9), r.decr(key("n"), 1)),
        (Ok(1), Ok(10), Ok(9)),
    )?;
    equal(r.incr(key("f"), 0.5), Ok(0.5))
}

fn pipelines(r: &mut Connection) -> Work<()> {
    let (mut writes, mut reads) = (redis::pipe(), redis::pipe());
    for n in 0..200 {
        writes.set(key(format!("p{n}")), n).ignore();
        reads.get(key(format!("p{n}")));
    }
    let () = writes.query(r)?;
    equal(reads.query(r), Ok((0..200).collect::<Vec<i64>>()))
}

fn cluster_pipelines(r: &mut ClusterConnection) -> Work<()> {
    let (mut writes, mut reads) = (cluster_pipe(), cluster_pipe());
    for n in 0..200 {
        writes.set(key(format!("p{n}")), n).ignore();
        reads.get(key(format!("p{n}")));
    }
    let () = writes.query(r)?;
    equal(reads.query(r), Ok((0..200).collect::<Vec<i64>>()))
}

fn multi(r: &mut impl ConnectionLike) -> Work<()> {
    let mut pipe = redis::pipe();
    let name = key("{m}");
    equal(
        pipe.atomic().set(&name, 1).ignore().incr(&name, 1).get(&name).query(r),
        Ok((2, "2".to_owned())),
    )
}

fn watch(r: &mut Connection) -> Work<()> {
    let name = key("{w}");
    let () = r.set(&name, 5)?;
    let (mut other, mut tries) = (plain()?, 0);
    let (sum,): (i64,) = redis::transaction(r, &[&name], |r, pipe| {
        let value: i64 = r.get(&name)?;
        if tries == 0 {
            let () = other.set(&name, 100)?;
        }
        tries += 1;
        pipe.incr(&name, value).query(r)
    })?;
    equal((sum, tries), (200, 2))
}

fn scripts(r: &mut (impl ConnectionLike + Commands), flush: impl FnOnce() -> RedisResult<()>) -> Work<()> {
    let release = Script::new(&format!(
        "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0 -- {}",
        key("")
    ));
    let () = r.set(key("s"), "mine")?;
    equal(release.key(key("s")).arg("other").invoke(r), Ok(0))?;
    flush()?;
    equal(release.key(key("s")).arg("mine").invoke(r), Ok(1))
}

fn scan(r: &mut Connection) -> Work<()> {
    let wanted: HashSet<String> = (0..200).map(|n| key(format!("scan{n}"))).collect();
    for name in &wanted {
        let () = r.set(name, 1)?;
    }
    let found: RedisResult<HashSet<String>> = r.scan_match(key("scan*"))?.collect();
    equal(found, Ok(wanted))
}

fn messages() -> Work<()> {
    let mut listener = plain()?;
    let mut listener = listener.as_pubsub();
    listener.subscribe(key("channel"))?;
    let () = plain()?.publish(key("channel"), "hello")?;
    equal(listener.get_message()?.get_payload::<String>(), Ok("hello".to_owned()))
}

fn hashes(r: &mut (impl ConnectionLike + Commands)) -> Work<()> {
    equal(r.hset(key("h"), "field", 1), Ok(1))
}

/// Runs what is async to its end.
fn block<T>(work: impl Future<Output = Work<T>>) -> Work<T> {
    Runtime::new()?.block_on(work)
}

/// Fifty commands under way on one connection, a pipeline, and a transaction.
async fn concurrent(mut r: impl AsyncCommands + Clone + Send + 'static, is_cluster: bool) -> Work<()> {
    let mut tasks = Vec::new();
    for n in 0..50 {
        let (mut r, name) = (r.clone(), key(format!("async{}", n % 5)));
        tasks.push(tokio::spawn(async move { r.incr::<_, _, i64>(name, 1).await }));
    }
    for task in tasks {
        task.await??;
    }
    equal(r.get(key("async0")).await, Ok(10))?;
    // Pipelines of an async cluster connection have the keys of one slot.
    let tag = if is_cluster { "{p}" } else { "" };
    let mut pipe = redis::pipe();
    for n in 0..20 {
        pipe.set(key(format!("{tag}{n}")), n)
            .ignore()
            .get(key(format!("{tag}{n}")));
    }
    equal(pipe.query_async(&mut r).await, Ok((0..20).collect::<Vec<i64>>()))?;
    let name = key("{m}");
    equal(
        redis::pipe()
            .atomic()
            .set(&name, 1)
            .ignore()
            .incr(&name, 1)
            .query_async(&mut r)
            .await,
        Ok((2,)),
    )
}

/// With `CacheMode::All`, reads come from the client's own memory until the server says that a key has changed.
async fn client_cache() -> Work<()> {
    let options = AsyncConnectionConfig::new().set_cache_config(CacheConfig::new());
    let mut r = client(0, "?protocol=resp3")?
        .get_multiplexed_async_connection_with_config(&options)
        .await?;
    let () = r.set(key("cached"), "1").await?;
    equal(r.get(key("cached")).await, Ok("1".to_owned()))?;
    let () = plain()?.set(key("cached"), "2")?;
    tokio::time::timeout(crate::trial::TIMEOUT, async {
        while r.get::<_, String>(key("cached")).await? != "2" {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    })
    .await?
}

fn works(trial: &Trial) {
    trial.check("any-key", "strings", || strings(&mut plain()?));
    trial.check("any-key", "expiry", || expiry(&mut plain()?));
    trial.check("any-key", "counters", || counters(&mut plain()?));
    trial.check("any-key", "pipelines", || pipelines(&mut plain()?));
    trial.check("any-key", "MULTI", || multi(&mut plain()?));
    trial.check("any-key", "WATCH", || watch(&mut plain()?));
    trial.check("any-key", "scripts", || {
        scripts(&mut plain()?, || redis::cmd("SCRIPT").arg("FLUSH").exec(&mut plain()?))
    });
    trial.check("any-key", "SCAN", || scan(&mut plain()?));
    trial.check("any-key", "async", || {
        block(async { concurrent(client(0, "")?.get_multiplexed_async_connection().await?, false).await })
    });
    trial.check("any-key", "ConnectionManager", || {
        block(async { concurrent(client(1, "")?.get_connection_manager().await?, false).await })
    });
    trial.check("any-key", "RESP3", || {
        strings(&mut client(0, "?protocol=resp3")?.get_connection()?)
    });
    trial.check("any-key", "database 1", || {
        equal(client(0, "1")?.get_connection()?.set(key("a"), 1), Ok(()))
    });
    trial.check("any-key", "Sentinel", || strings(&mut sentinels(2)?.get_connection()?));
    trial.check("any-key", "client-side cache", || block(client_cache()));
    trial.check("any-key", "Pub/Sub", messages);
    trial.check("any-key", "hashes", || hashes(&mut plain()?));
    trial.check("cluster", "strings", || strings(&mut cluster()?));
    trial.check("cluster", "expiry", || expiry(&mut cluster()?));
    trial.check("cluster", "counters", || counters(&mut cluster()?));
    trial.check("cluster", "pipelines", || cluster_pipelines(&mut cluster()?));
    trial.check("cluster", "scripts", || {
        scripts(&mut cluster()?, || {
            redis::cmd("SCRIPT").arg("FLUSH").exec(&mut plain()?)
        })
    });
    trial.check("cluster", "async", || {
        block(async {
            concurrent(
                ClusterClient::new(cluster_addresses())?.get_async_connection().await?,
                true,
            )
            .await
        })
    });
    trial.check("cluster", "RESP3", || {
        strings(
            &mut ClusterClient::builder(cluster_addresses())
                .use_protocol(redis::ProtocolVersion::RESP3)
                .build()?
                .get_connection()?,
        )
    });
    trial.check("cluster", "hashes", || hashes(&mut cluster()?));
}

/// A blocking connection that is opened anew after an error, as a pool does.
fn blocking<C: ConnectionLike + Commands + Send + 'static>(
    how: &'static str,
    connect: impl FnMut() -> RedisResult<C> + Send + 'static,
) -> Way {
    struct Kept<C, F>(Option<C>, F);
    impl<C: ConnectionLike, F: FnMut() -> RedisResult<C>> Kept<C, F> {
        fn with<T>(&mut self, work: impl FnOnce(&mut C) -> RedisResult<T>) -> Work<T> {
            if self.0.as_ref().is_none_or(|one| !one.is_open()) {
                self.0 = Some((self.1)()?);
            }
            let connection = self.0.as_mut().ok_or("not connected")?;
            work(connection).map_err(|error| {
                self.0 = None;
                error.into()
            })
        }
    }
    let kept = std::sync::Arc::new(std::sync::Mutex::new(Kept(None, connect)));
    let other = kept.clone();
    Way {
        how,
        put: Box::new(move |name, value| other.lock().expect("no panic").with(|r| r.set(name, value))),
        get: Box::new(move |name| kept.lock().expect("no panic").with(|r| r.get(name))),
    }
}

fn asynchronous<C: AsyncCommands + Clone + 'static>(
    how: &'static str,
    connect: impl Future<Output = RedisResult<C>>,
) -> Work<Way> {
    let runtime = std::sync::Arc::new(Runtime::new()?);
    let connection = runtime.block_on(connect)?;
    let (mut writes, mut reads, other) = (connection.clone(), connection, runtime.clone());
    Ok(Way {
        how,
        put: Box::new(move |name, value| Ok(other.block_on(writes.set(name, value))?)),
        get: Box::new(move |name| Ok(runtime.block_on(reads.get(name))?)),
    })
}

fn manager(node: u16, reply: Option<Duration>) -> impl Future<Output = RedisResult<ConnectionManager>> {
    let mut options = ConnectionManagerConfig::new();
    if let Some(reply) = reply {
        options = options.set_response_timeout(Some(reply));
    }
    async move { ConnectionManager::new_with_config(client(node, "")?, options).await }
}

fn rides(trial: &Trial) -> Result<(), Failed> {
    let victim = place().victim;
    let second = Duration::from_secs(1);
    let limited = move |r: Connection| {
        r.set_read_timeout(Some(second))?;
        Ok(r)
    };
    let of_cluster = |reply| {
        ClusterClient::builder(cluster_addresses())
            .response_timeout(reply)
            .connection_timeout(second)
            .max_retry_wait(1_000)
            .build()
    };
    let (sync_cluster, async_cluster, limited_cluster) = (
        of_cluster(second)?,
        ClusterClient::new(cluster_addresses())?,
        of_cluster(second)?,
    );
    trial.ride(vec![
        asynchronous("ConnectionManager, any-key port, another node dies", manager(0, None))?,
        asynchronous(
            "ConnectionManager, any-key port, another node dies; `set_response_timeout` 3 s",
            manager(0, Some(3 * second)),
        )?,
        asynchronous(
            "ConnectionManager, any-key port, its own node dies",
            manager(victim, None),
        )?,
        blocking(
            "blocking, any-key port, its own node dies; `set_read_timeout` 1 s",
            move || client(victim, "")?.get_connection().and_then(limited),
        ),
        blocking(
            "blocking, cluster port; `response_timeout`, `connection_timeout`, `max_retry_wait` 1 s",
            move || sync_cluster.get_connection(),
        ),
        asynchronous("async, cluster port", async move {
            async_cluster.get_async_connection().await
        })?,
        asynchronous(
            "async, cluster port; `response_timeout`, `connection_timeout`, `max_retry_wait` 1 s",
            async move { limited_cluster.get_async_connection().await },
        )?,
    ]);
    Ok(())
}

pub fn run() -> Work<()> {
    let trial = Trial::new("redis-rs", "redis");
    works(&trial);
    if place().rides { rides(&trial) } else { Ok(()) }
}
