// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB 2>&1 | filecheck %s

// Both words of a pair of counters are computed at the place of each, and one is kept: so every part of a row can be drawn alone.
// The last pair has a zero for its second counter: 99 x 501 is odd.

// CHECK: stablehlo.while({{.*}}) : tensor<i32>, tensor<99xui32>
// CHECK-NOT: tensor<24800xui32>
// CHECK: stablehlo.while({{.*}}) : tensor<i32>, tensor<99x[[TILE:[0-9]+]]xui32>, tensor<99x[[TILE]]xui32>
// CHECK: stablehlo.select {{.*}} : tensor<99x[[TILE]]xi1>, tensor<99x[[TILE]]xui32>
// CHECK-NOT: xui32>) -> tensor<49600xui32>

func.func @main(%key: tensor<ui32>) -> tensor<99xui32> {
  %none = stablehlo.constant dense<0> : tensor<1xui32>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %five = stablehlo.constant dense<5> : tensor<i32>
  %low = stablehlo.constant dense<0> : tensor<ui32>
  %count = stablehlo.iota dim = 0 : tensor<49599xui32>
  %even = stablehlo.concatenate %count, %none, dim = 0 : (tensor<49599xui32>, tensor<1xui32>) -> tensor<49600xui32>
  %first = stablehlo.slice %even [0:24800] : (tensor<49600xui32>) -> tensor<24800xui32>
  %second = stablehlo.slice %even [24800:49600] : (tensor<49600xui32>) -> tensor<24800xui32>
  %0:3 = stablehlo.while(%i = %zero, %a = %first, %b = %second) : tensor<i32>, tensor<24800xui32>, tensor<24800xui32>
  cond {
    %c = stablehlo.compare LT, %i, %five, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %n = stablehlo.add %i, %one : tensor<i32>
    %k = stablehlo.broadcast_in_dim %key, dims = [] : (tensor<ui32>) -> tensor<24800xui32>
    %s = stablehlo.add %a, %b : tensor<24800xui32>
    %l = stablehlo.shift_left %b, %k : tensor<24800xui32>
    %x = stablehlo.xor %s, %l : tensor<24800xui32>
    stablehlo.return %n, %s, %x : tensor<i32>, tensor<24800xui32>, tensor<24800xui32>
  }
  %1 = stablehlo.concatenate %0#1, %0#2, dim = 0 : (tensor<24800xui32>, tensor<24800xui32>) -> tensor<49600xui32>
  %2 = stablehlo.slice %1 [0:49599] : (tensor<49600xui32>) -> tensor<49599xui32>
  %3 = stablehlo.reshape %2 : (tensor<49599xui32>) -> tensor<99x501xui32>
  %4 = stablehlo.reduce(%3 init: %low) applies stablehlo.maximum across dimensions = [1] : (tensor<99x501xui32>, tensor<ui32>) -> tensor<99xui32>
  return %4 : tensor<99xui32>
}
