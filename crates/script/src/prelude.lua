-- Builds what a script sees (docs/scripts.md). It runs once, when a sandbox is made.
--
-- Two rules hold for all of it. What catches an error passes on the end of a script: `caught` raises it again. No
-- function of C or Rust loops longer than its arguments are, because the hook that counts instructions sees only Lua.

local natives = ...
local native_pcall, native_xpcall, native_resume = pcall, xpcall, coroutine.resume
local error, type, select, tostring, next, rawset, setmetatable, unpack =
    error, type, select, tostring, next, rawset, setmetatable, unpack
local floor, native_create, rawget = math.floor, coroutine.create, rawget
local caught, at_error = natives.caught, natives.at_error

local function results(is_ok, ...)
    if is_ok then return true, ... end
    return false, caught((...))
end

local function unwrapped(is_ok, ...)
    if is_ok then return ... end
    error(caught((...)), 0)
end

-- As in Redis, `pcall` gives the text of a command's error, and `redis.pcall` its table.
local function text_results(is_ok, ...)
    if is_ok then return true, ... end
    local problem = caught((...))
    if type(problem) == "table" and type(problem.err) == "string" then problem = problem.err end
    return false, problem
end

local function guarded_pcall(f, ...) return text_results(native_pcall(f, ...)) end

-- Functions of Rust hold each argument in a slot, of which there are 8,000. The most that they are given, and that
-- `unpack` gives:
local ARGUMENTS_MAX, UNPACKED_MAX = 7700, 7600

local function few(f)
    return function(...)
        if select("#", ...) > ARGUMENTS_MAX then error("too many arguments", 2) end
        return f(...)
    end
end

-- Tables of the sandbox are seen through an empty one, so that a script cannot change them.
local real_of = {}

local function refuse_change() error("Attempt to modify a readonly table", 2) end

local function protect(real)
    local seen = setmetatable({}, { __index = real, __newindex = refuse_change, __metatable = false })
    real_of[seen] = real
    return seen
end

-- Redis' own commands. `redis.call` is set before each run.
local redis = natives.redis
for _, name in next, { "sha1hex", "setresp", "acl_check_cmd", "log", "set_repl" } do redis[name] = few(redis[name]) end

function redis.call(...)
    if select("#", ...) > ARGUMENTS_MAX then error("too many arguments", 2) end
    return natives.call(...)
end

function redis.pcall(...)
    local is_ok, result = native_pcall(redis.call, ...)
    if is_ok then return result end
    result = caught(result)
    if type(result) ~= "table" then result = { err = tostring(result) } end
    return result
end

local function one_text(field, name, ...)
    local text = ...
    if select("#", ...) ~= 1 or type(text) ~= "string" then
        return { err = "ERR wrong number or type of arguments" }
    end
    if field == "err" then
        if text:sub(1, 1) == "-" then text = text:sub(2) end
    end
    return { [field] = text }
end

function redis.error_reply(...) return one_text("err", "error_reply", ...) end
function redis.status_reply(...) return one_text("ok", "status_reply", ...) end

function redis.replicate_commands() return true end
function redis.breakpoint() return false end
function redis.debug() end

redis.LOG_DEBUG, redis.LOG_VERBOSE, redis.LOG_NOTICE, redis.LOG_WARNING = 0, 1, 2, 3
redis.REPL_NONE, redis.REPL_AOF, redis.REPL_SLAVE, redis.REPL_REPLICA, redis.REPL_ALL = 0, 1, 2, 2, 3

-- Strings: what matches patterns, or loops by a number, is counted.
local strings = {}
for _, name in next, { "byte", "char", "format", "len", "sub" } do strings[name] = string[name] end
for _, name in next, { "lower", "rep", "reverse", "upper" } do strings[name] = natives[name] end

-- Captures come as one value, or in a table: Rust cannot make room for many results when the memory is used up.
local function captured(count, value)
    if count == 1 then return value end
    return unpack(value, 1, count)
end

function strings.find(text, pattern, from, is_plain)
    local first, last, count, value = natives.find(text, pattern, from, is_plain)
    if not first then return nil end
    if count == 0 then return first, last end
    return first, last, captured(count, value)
end

function strings.match(text, pattern, from)
    local count, value = natives.match(text, pattern, from)
    if count == 0 then return nil end
    return captured(count, value)
end

function strings.gmatch(text, pattern)
    local at = 0
    return function()
        local after, count, value = natives.gmatch(text, pattern, at)
        at = after
        if count == 0 then return nil end
        return captured(count, value)
    end
end

strings.gfind = strings.gmatch

function strings.gsub(text, pattern, replacement, most)
    local kind = type(replacement)
    if kind ~= "function" and kind ~= "table" then
        if kind ~= "string" and kind ~= "number" then
            error("bad argument #3 to 'gsub' (string/function/table expected)", 2)
        end
        return natives.gsub(text, pattern, replacement, most)
    end
    text = natives.text(text, "gsub")
    local pieces, count, at, from = {}, 0, 0, 1
    most = most or #text + 1
    local anchored = natives.text(pattern, "gsub"):sub(1, 1) == "^"
    local function piece(first, after, whole, captures, found)
        if not first then return false end
        count = count + 1
        local value
        if kind == "function" then
            value = replacement(captured(captures, found))
        else
            value = replacement[(captured(captures, found))]
        end
        if not value then
            value = whole
        elseif type(value) ~= "string" and type(value) ~= "number" then
            error("invalid replacement value (a " .. type(value) .. ")", 3)
        end
        pieces[#pieces + 1] = text:sub(from, first - 1)
        pieces[#pieces + 1] = value
        from, at = after, after - 1
        if after == first then
            -- An empty match: the next byte stays as it is.
            at = at + 1
        end
        return not anchored
    end
    while count < most and at <= #text and piece(natives.gsub_step(text, pattern, at)) do end
    pieces[#pieces + 1] = text:sub(from)
    return natives.concat(pieces, "", 1, #pieces), count
end

-- Tables. Those of C loop as far as `#` says, which a script can make as large as it likes.
local tables = {}

local function check_table(value, name)
    if type(value) ~= "table" then
        error("bad argument #1 to '" .. name .. "' (table expected, got " .. type(value) .. ")", 3)
    end
end

function tables.insert(list, ...)
    check_table(list, "insert")
    local count = select("#", ...)
    if count == 1 then
        list[#list + 1] = (...)
        return
    end
    if count ~= 2 then error("wrong number of arguments to 'insert'", 2) end
    local at, value = ...
    at = natives.integer(at, 2, "insert")
    local last = #list + 1
    if at > last then last = at end
    for to = last, at + 1, -1 do list[to] = list[to - 1] end
    list[at] = value
end

function tables.remove(list, at)
    check_table(list, "remove")
    local last = #list
    at = at == nil and last or natives.integer(at, 2, "remove")
    if at < 1 or at > last then return end
    local value = list[at]
    for to = at, last - 1 do list[to] = list[to + 1] end
    list[last] = nil
    return value
end

tables.concat = natives.concat

function tables.getn(list) check_table(list, "getn") return #list end
function tables.setn() error("'setn' is obsolete", 2) end

function tables.maxn(list)
    check_table(list, "maxn")
    local most = 0
    for key in next, list do
        if type(key) == "number" and key > most then most = key end
    end
    return most
end

function tables.foreach(list, f)
    check_table(list, "foreach")
    for key, value in next, list do
        local result = f(key, value)
        if result ~= nil then return result end
    end
end

function tables.foreachi(list, f)
    check_table(list, "foreachi")
    for at = 1, #list do
        local result = f(at, list[at])
        if result ~= nil then return result end
    end
end

-- Merges runs of doubled length.
function tables.sort(list, before)
    check_table(list, "sort")
    if before ~= nil and type(before) ~= "function" then
        error("bad argument #2 to 'sort' (function expected, got " .. type(before) .. ")", 2)
    end
    local is_before = before or function(a, b) return a < b end
    local count = #list
    -- Short runs are sorted in place.
    local run = 8
    for first = 1, count, run do
        local last = first + run - 1
        if last > count then last = count end
        for at = first + 1, last do
            local value = list[at]
            local to = at - 1
            while to >= first and is_before(value, list[to]) do
                list[to + 1] = list[to]
                to = to - 1
            end
            list[to + 1] = value
        end
    end
    local from, into = list, {}
    while run < count do
        for first = 1, count, 2 * run do
            local left, left_end = first, first + run
            if left_end > count + 1 then left_end = count + 1 end
            local right, right_end = left_end, left_end + run
            if right_end > count + 1 then right_end = count + 1 end
            for to = first, right_end - 1 do
                if left < left_end and (right >= right_end or not is_before(from[right], from[left])) then
                    into[to] = from[left]
                    left = left + 1
                else
                    into[to] = from[right]
                    right = right + 1
                end
            end
        end
        from, into, run = into, from, 2 * run
    end
    if from ~= list then
        for at = 1, count do list[at] = from[at] end
    end
end

local maths = {}
for name, value in next, math do maths[name] = value end
maths.random, maths.randomseed = natives.random, natives.randomseed

local function create(f)
    natives.on_coroutine()
    return native_create(f)
end

local coroutines = { create = create, running = coroutine.running, status = coroutine.status, yield = coroutine.yield }

function coroutines.resume(thread, ...) return results(native_resume(thread, ...)) end

function coroutines.wrap(f)
    local thread = create(f)
    return function(...) return unwrapped(native_resume(thread, ...)) end
end

-- What a script sees of all this. Missing globals are errors, which `missing` raises.
local globals = natives.globals
local script_globals = setmetatable({}, { __index = globals, __newindex = refuse_change, __metatable = false })
real_of[script_globals] = globals

local function missing(_, name)
    error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
end

setmetatable(globals, { __index = missing })

for _, name in next, { "assert", "error", "getmetatable", "ipairs", "rawequal", "select", "setmetatable", "tonumber",
    "tostring", "type" } do
    rawset(globals, name, _G[name])
end

function globals.unpack(list, first, last)
    if type(list) ~= "table" then
        error("bad argument #1 to 'unpack' (table expected, got " .. type(list) .. ")", 2)
    end
    first, last = first or 1, last or #list
    if last - first >= UNPACKED_MAX then error("too many results to unpack", 2) end
    return unpack(list, first, last)
end

function globals.rawset(list, key, value)
    if list ~= nil and real_of[list] then error("Attempt to modify a readonly table", 2) end
    return rawset(list, key, value)
end

function globals.rawget(list, key) return rawget(list ~= nil and real_of[list] or list, key) end

function globals.next(list, key) return next(list ~= nil and real_of[list] or list, key) end

function globals.pairs(list)
    if type(list) ~= "table" then
        error("bad argument #1 to 'pairs' (table expected, got " .. (list == nil and "nil" or type(list)) .. ")", 2)
    end
    return next, real_of[list] or list, nil
end

function globals.xpcall(f, handler)
    return results(native_xpcall(f, function(problem) return handler(caught(problem)) end))
end

function globals.loadstring(source, name)
    local f, problem = natives.loadstring(source, name or "=[string]")
    if not f then return nil, problem end
    return f
end

function globals.load(pieces, name)
    if type(pieces) ~= "function" then error("bad argument #1 to 'load' (function expected)", 2) end
    local all = {}
    while true do
        local piece = pieces()
        if piece == nil or piece == "" then break end
        if type(piece) ~= "string" then return nil, "reader function must return a string" end
        all[#all + 1] = piece
    end
    return globals.loadstring(natives.concat(all, "", 1, #all), name or "=(load)")
end

function globals.collectgarbage(what)
    if what == "count" then return natives.used_kilobytes() end
    return 0
end

function globals.gcinfo() return floor(natives.used_kilobytes()) end

rawset(globals, "pcall", guarded_pcall)
rawset(globals, "_VERSION", _VERSION)
rawset(globals, "_G", script_globals)
rawset(globals, "redis", protect(redis))
rawset(globals, "server", globals.redis)
rawset(globals, "string", protect(strings))
rawset(globals, "table", protect(tables))
rawset(globals, "math", protect(maths))
rawset(globals, "coroutine", protect(coroutines))
for _, name in next, { "bit", "cjson", "cmsgpack", "struct" } do
    local library = {}
    for key, value in next, natives[name] do library[key] = type(value) == "function" and few(value) or value end
    rawset(globals, name, protect(library))
end
-- They give their values in a table, for the same reason as captures.
for library, names in next, { cmsgpack = { "unpack", "unpack_one", "unpack_limit" }, struct = { "unpack" } } do
    for _, name in next, names do
        local f = real_of[globals[library]][name]
        real_of[globals[library]][name] = function(...)
            local values, count = f(...)
            return unpack(values, 1, count)
        end
    end
end
maths.random = few(natives.random)

-- Libraries of functions. While one is loaded it sees nothing but `redis`, with few functions; its functions see what
-- scripts see, without KEYS and ARGV. Its locals are made anew for each call.
local registered, registered_bytes
local library_globals = {}
local functions_see, load_sees = {}, {}
for name, value in next, globals do rawset(functions_see, name, value) end
functions_see._G = library_globals
setmetatable(functions_see, { __index = missing })
real_of[library_globals] = functions_see
local library_sees = { __index = functions_see, __newindex = refuse_change, __metatable = false }
setmetatable(library_globals, library_sees)

local function refuse(text) error({ err = "ERR " .. text }, 0) end

local function is_text(value) return type(value) == "string" or type(value) == "number" end

local function flags_of(list)
    local flags = {}
    for at = 1, #list do
        local bit = is_text(list[at]) and natives.function_flag(tostring(list[at]))
        if not bit then refuse("unknown flag given") end
        flags[bit] = true
    end
    return flags
end

local function named_function(named)
    if type(named) ~= "table" then
        refuse("calling redis.register_function with a single argument is only applicable to Lua table (representing named arguments).")
    end
    local made = {}
    for key, value in next, real_of[named] or named do
        if not is_text(key) then refuse("named argument key given to redis.register_function is not a string") end
        key = natives.lower(tostring(key))
        if key == "function_name" or key == "description" then
            if not is_text(value) then
                refuse(key .. " argument given to redis.register_function must be a string")
            end
            made[key] = tostring(value)
        elseif key == "callback" then
            if type(value) ~= "function" then
                refuse("callback argument given to redis.register_function must be a function")
            end
            made.callback = value
        elseif key == "flags" then
            if type(value) ~= "table" then
                refuse("flags argument to redis.register_function must be a table representing function flags")
            end
            made.flags = flags_of(value)
        else
            refuse("unknown argument given to redis.register_function")
        end
    end
    if not made.function_name then refuse("redis.register_function must get a function name argument") end
    if not made.callback then refuse("redis.register_function must get a callback argument") end
    return made
end

local function register_function(...)
    if not registered then refuse("redis.register_function can only be called on FUNCTION LOAD command") end
    local count = select("#", ...)
    local made
    if count == 1 then
        made = named_function((...))
    elseif count == 2 then
        local name, callback = ...
        if not is_text(name) then refuse("first argument to redis.register_function must be a string") end
        if type(callback) ~= "function" then
            refuse("second argument to redis.register_function must be a function")
        end
        made = { function_name = tostring(name), callback = callback }
    else
        refuse("wrong number of arguments to redis.register_function")
    end
    if not natives.is_library_name(made.function_name) then refuse(natives.BAD_NAME) end
    local key = natives.lower(made.function_name)
    if registered[key] then refuse("Function already exists in the library") end
    -- Many functions may share one long description, which is copied for each outside of Lua.
    registered_bytes = registered_bytes + #key + #(made.description or "")
    if #registered == natives.FUNCTIONS_MAX or registered_bytes > natives.REGISTERED_BYTES_MAX then
        refuse("a library may have " .. natives.FUNCTIONS_MAX .. " functions, and " .. natives.REGISTERED_BYTES_MAX
            .. " bytes of their names and descriptions")
    end
    registered[key], registered[#registered + 1] = made, made
end

local load_redis = { register_function = register_function }
for _, name in next, { "log", "LOG_DEBUG", "LOG_VERBOSE", "LOG_NOTICE", "LOG_WARNING", "REDIS_VERSION", "REDIS_VERSION_NUM" } do
    load_redis[name] = redis[name]
end
setmetatable(load_redis, { __index = missing })
load_sees.redis = protect(load_redis)
load_sees.server = load_sees.redis
setmetatable(load_sees, { __index = missing })

-- Loads a library, and returns what it has registered, or calls one of its functions.
local function run_library(chunk, name, keys, args)
    local function all()
        registered, registered_bytes, library_sees.__index = {}, 0, load_sees
        chunk()
        local found = registered
        registered, library_sees.__index = nil, functions_see
        if not name then return found end
        local called = found[name]
        if not called then return { err = "ERR Function not found" } end
        return called.callback(keys, args)
    end
    local is_ok, result = native_xpcall(all, at_error)
    registered, library_sees.__index = nil, functions_see
    return is_ok, result
end

-- `("x"):rep(2)` finds the counted functions too.
local of_strings = getmetatable("")
of_strings.__index, of_strings.__metatable = globals.string, false

local function run(f) return native_xpcall(f, at_error) end

return script_globals, run, library_globals, run_library
