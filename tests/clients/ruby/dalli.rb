# Dalli, which speaks the meta commands of the text protocol if it is told so, with one server and with all.

require_relative "trial"
require "dalli"
require "logger"

Dalli.logger = Logger.new($stderr)
TRIAL = Trial.new("Dalli", Dalli::VERSION)

def of(nodes, **options)
  Dalli::Client.new(nodes.map { |node| "127.0.0.1:#{port('memcached', node)}" }, **{ protocol: :meta, **options })
end

def every_command(dalli)
  raise "set" unless dalli.set(key("a"), { "b" => 1 })

  equal(dalli.get(key("a")), { "b" => 1 })
  equal([dalli.add(key("a"), 2), dalli.add(key("c"), 2), dalli.replace(key("none"), 2)].map { |done| done ? true : false }, [false, true, false])
  value, token = dalli.get_cas(key("a"))
  equal([value, dalli.set_cas(key("a"), 3, token) ? true : false, dalli.set_cas(key("a"), 4, token) ? true : false], [{ "b" => 1 }, true, false])
  equal([dalli.cas(key("a")) { |old| old + 1 } ? true : false, dalli.get(key("a"))], [true, 4])
  dalli.set(key("s"), "m", 100, raw: true)
  dalli.append(key("s"), "y")
  dalli.prepend(key("s"), "x")
  equal(dalli.get(key("s"), raw: true), "xmy")
  equal([dalli.incr(key("n"), 7, 100, 5), dalli.incr(key("n"), 7), dalli.decr(key("n"), 20)], [5, 12, 0])
  equal(dalli.fetch(key("lazy"), 100) { "made" }, "made")
  equal(dalli.fetch(key("lazy"), 100) { "made again" }, "made")
  names = (0...60).map { |n| key("m#{n}") }
  dalli.quiet { names.first(50).each_with_index { |name, n| dalli.set(name, n) } }
  equal(dalli.get_multi(*names), names.first(50).each_with_index.to_h)
  equal(dalli.get_multi_cas(*names).size, 50)
  dalli.set(key("g"), "v", 100)
  equal([dalli.gat(key("g"), 200), dalli.gat(key("none"), 200)], ["v", nil])
  dalli.touch(key("a"), 1)
  till { dalli.get(key("a")).nil? }
  equal([dalli.delete(key("c")), dalli.delete(key("c"))].map { |done| done ? true : false }, [true, false])
  [key("é 1"), key("x" * 300)].each do |name|
    dalli.set(name, 1)
    equal(dalli.get(name), 1)
  end
  dalli.set(key("large"), "x" * 1_000_000, 100, compress: false)
  equal(dalli.get(key("large")).size, 1_000_000)
end

TRIAL.check("memcached", "one node: every command") { every_command(of([0])) }
TRIAL.check("memcached", "all nodes: every command") { every_command(of(0...NODES)) }
TRIAL.check("memcached", "threads") do
  dalli = of([1])
  dalli.set(key("t"), "0", 0, raw: true)
  (0...4).map { Thread.new { 20.times { dalli.incr(key("t")) } } }.each(&:join)
  equal(dalli.get(key("t"), raw: true), "80")
end
TRIAL.check("memcached", "get_with_metadata") do
  dalli = of([2])
  dalli.set(key("a"), 1)
  found = dalli.get_with_metadata(key("a"), return_hit_status: true, return_last_access: true, skip_lru_bump: true)
  equal(found[:value], 1)
end
TRIAL.check("memcached", "fetch_with_lock") { equal(of([2]).fetch_with_lock(key("a"), ttl: 100, lock_ttl: 10) { 1 }, 1) }
TRIAL.check("memcached", "`protocol: :binary`") { equal(of([0], protocol: :binary).get(key("a")), nil) }

def way(dalli)
  put = ->(name, value) { dalli.set(name, value) || raise("not set") }
  get = ->(name) { dalli.get(name) || raise("a miss") }
  [put, get]
end

TRIAL.ride({
  "memcached port, another node dies" => way(of([0])),
  "memcached port, its own node dies" => way(of([VICTIM])),
  "memcached port, its own node dies; `down_retry_delay: 1`" => way(of([VICTIM], down_retry_delay: 1)),
  "memcached ports of all nodes" => way(of(0...NODES)),
})
